"""The list of metrics in a file that changes while the agent runs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from libs.host.machine import InlineOffload
from libs.runtime.metrics import Metrics
from libs.testing.simulation import Sim
from services.telemetry.metric_list import DEFAULT_LIST
from services.telemetry.node.metric_file import MAX_BYTES, READ_INTERVAL, MetricFile
from tests.support import in_virtual_time

ERRORS = "sluice_telemetry_metric_list_errors_total"
ONE = "DCGM_FI_DEV_GPU_TEMP, gauge, warm\n"


class Reader:
    """A file, followed within `following`."""

    def __init__(self, sim: Sim, path: str) -> None:
        self.metrics = Metrics(version="0")
        self.file = MetricFile(path, offload=InlineOffload(), clock=sim.clock, metrics=self.metrics)

    @asynccontextmanager
    async def following(self) -> AsyncGenerator["Reader"]:
        task = asyncio.get_running_loop().create_task(self.file.follow())
        yield self
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def names(self) -> list[str]:
        return [metric.field.name for metric in self.file.current.metrics]

    @property
    def errors(self) -> float | None:
        return self.metrics.registry.get_sample_value(ERRORS)


@in_virtual_time
async def test_a_changed_list_is_used_and_its_errors_count_once(sim: Sim, tmp_path: Path) -> None:
    path = tmp_path / "dcgm-metrics.csv"
    with capture_logs() as logs:
        async with Reader(sim, str(path)).following() as reader:
            await sim.clock.sleep(3 * READ_INTERVAL + 1)
            assert (reader.file.current, reader.errors) == (DEFAULT_LIST, 1)
            path.write_text(f"{ONE}DCGM_FI_DEV_WRONG, gauge, x\nDCGM_FI_DEV_SM_CLOCK, gauge\n")
            await sim.clock.sleep(3 * READ_INTERVAL)
            assert (reader.names, reader.errors) == (["DCGM_FI_DEV_GPU_TEMP"], 3)
            path.write_text(ONE.replace("GPU_TEMP", "PSTATE"))
            await sim.clock.sleep(READ_INTERVAL)
            assert (reader.names, reader.errors) == (["DCGM_FI_DEV_PSTATE"], 3)
            path.unlink()
            await sim.clock.sleep(READ_INTERVAL)
            assert (reader.names, reader.errors) == (["DCGM_FI_DEV_PSTATE"], 4)
            path.write_text("# nothing\n")
            await sim.clock.sleep(READ_INTERVAL)
            assert (reader.file.current, reader.errors) == (DEFAULT_LIST, 5)
    assert [each.get("line") for each in logs if each["log_level"] == "error"] == [
        *(None, 2, 3),
        *(None, None),
    ]


@pytest.mark.parametrize(
    ("content", "errors"),
    [(b"\xff\xfe\0\n", {1, 2}), (b"x" * (MAX_BYTES + 1), {1, 2}), (b"", {1, 2}), (None, {0})],
    ids=["no text", "too much", "an empty file", "no file is named"],
)
@in_virtual_time
async def test_a_list_that_is_none_leaves_the_default_list(
    sim: Sim, tmp_path: Path, content: bytes | None, errors: set[int]
) -> None:
    path = tmp_path / "list"
    path.write_bytes(content or b"")
    async with Reader(sim, "" if content is None else str(path)).following() as reader:
        await sim.clock.sleep(2 * READ_INTERVAL)
        assert reader.file.current == DEFAULT_LIST
        assert reader.errors in errors
