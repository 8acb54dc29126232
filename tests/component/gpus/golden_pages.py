"""The golden pages: every field of each machine, as the real pynvml reads it from the stand-in.

`python -m tests.component.gpus.golden_pages` rewrites them. A page has the first GPU, which works
and has had an XID, and the last one, which is idle; those between are as the last.
"""

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from libs.host.gpus.port import GpuHandle
from libs.host.machine import InlineOffload, Machine
from libs.host.podresources.assignments import PodContainer, PodsByGpu
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from libs.runtime.metrics import Metrics
from libs.testing.nvml import StandInGpu, library
from libs.testing.nvml.products import A100
from services.telemetry.exposition import NodeSamples, render, rows
from services.telemetry.field import NumberField
from services.telemetry.fields import FIELDS
from services.telemetry.metric_list import DEFAULT_LIST, Metric, MetricList
from services.telemetry.node.sampler import Sampler, Sweep, TelemetryMetrics
from tests.component.gpus.machine import StandInMachine
from tests.component.testing.nvml.client import Client
from tests.component.testing.nvml.geometry import partition

GOLDEN: Final = Path(__file__).parent / "golden"
MACHINES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "h100-80gb-x8": ("H100-80GB", ()),
    "a100-40gb-mig": ("A100-40GB", ("3g.20gb", "1g.5gb")),
    "t4": ("T4", ()),
    "l40s-x4": ("L40S", ()),
    "gb200-x4": ("GB200", ()),
}
"""By golden file: the profile, and the GPU instances of its first GPU."""

NODE: Final = "gpu-1.example"
TRAINER: Final = PodContainer("ml", "trainer-0", "main")
EVERY_FIELD: Final = MetricList(
    metrics=tuple(
        Metric(field=field, type=field.type, help=field.help)
        for field in FIELDS.values()
        if isinstance(field, NumberField)
    ),
    labels=DEFAULT_LIST.labels,
)
_LABELS: Final = re.compile(r"(?<=\w)\{(.*)\}(?= \S+$)")
_MIB: Final = 1 << 20


def page(bench: StandInMachine, *, instances: tuple[str, ...]) -> str:
    """Return the page of every field of a machine."""
    if instances:
        _divide(bench, instances)
    first = bench.stand_in.gpus[0]
    _let_work(first)
    sampler = Sampler(
        machine=Machine(tree=Tree(bench.root), offload=InlineOffload(), gpus=bench.gpus),
        hold=GpuHandle(bench.gpus),
        clock=SystemClock(),
        metrics=TelemetryMetrics(Metrics(version="0")),
        on_sweep=_judge_nothing,
    )
    asyncio.run(_sweep(sampler, bench))
    sweep = sampler.current
    assert sweep is not None
    node = NodeSamples(
        node=NODE,
        driver_version=sweep.driver_version,
        samples=sweep.samples,
        gpus={gpu.uuid: gpu for gpu in sweep.gpus},
    )
    pods: PodsByGpu = {(first.uuid, 1 if instances else None): (TRAINER,)}
    found = rows([node], EVERY_FIELD, hostname_label="hostname", pods=pods)
    return render(EVERY_FIELD.metrics, list(found)).decode()


def shown(text: str, *, gpus: int) -> str:
    """Return a page for people: of two GPUs, labels in a list, and the absent fields."""
    kept = re.compile(rf'#|\w+{{gpu="(0|{gpus - 1})"')
    numbers: dict[str, int] = {}

    def number(labels: re.Match[str]) -> str:
        return f"{{({numbers.setdefault(labels[1], len(numbers) + 1)})}}"

    lines = [_LABELS.sub(number, line) for line in text.splitlines() if kept.match(line)]
    names = [metric.field.name for metric in EVERY_FIELD.metrics]
    absent = [name for name in names if f"# TYPE {name} " not in text]
    return "\n".join(
        (
            *(f"({place}) = {labels}" for labels, place in numbers.items()),
            "",
            *lines,
            "",
            "Absent on this machine:",
            *absent,
            "",
        )
    )


def values(text: str, gpu: int) -> list[tuple[str, str]]:
    """Return the names and values of one GPU's samples."""
    return re.findall(rf'^(\w+){{gpu="{gpu}",.*}} (\S+)$', text, re.MULTILINE)


async def _sweep(sampler: Sampler, bench: StandInMachine) -> None:
    await sampler.sweep()  # rates have a value from the second sweep on
    bench.fail(bench.stand_in.gpus[0].uuid, 31)
    bench.settle()
    await sampler.sweep()


async def _judge_nothing(_sweep: Sweep | None, _xids: Mapping[str, tuple[int, ...]]) -> None: ...


def _divide(bench: StandInMachine, instances: tuple[str, ...]) -> None:
    client = Client(library())
    try:
        client.open(bench.stand_in)
        client.nvmlDeviceSetMigMode(client.gpu(0), 1)
        bench.stand_in.gpus[0].reset()
        partition(client, client.gpu(0), A100, *instances)
    finally:
        client.end()


def _let_work(gpu: StandInGpu) -> None:
    """Give the GPU values that differ, as a job does and as errors do."""
    readings, health, profiling = gpu.readings, gpu.health, gpu.profiling
    readings.sm_clock_mhz, readings.memory_clock_mhz, readings.video_clock_mhz = 1980, 2619, 1545
    readings.memory_temperature_c, readings.temperature_c = 58, 51
    readings.power_mw, readings.energy_mj = 412_500, 9_876_543_210
    readings.pcie_replays, readings.performance_state, readings.clock_reasons = 2, 0, 0x24
    readings.gpu_utilization, readings.memory_utilization = 97, 61
    readings.encoder_utilization, readings.decoder_utilization = 3, 4
    readings.memory_used = 10_000 * _MIB
    readings.violations_ns[:] = range(11, 17)
    health.remapped_uncorrected, health.remapped_corrected, health.remap_pending = 1, 2, 1
    health.ecc_volatile.corrected_dram, health.ecc_volatile.uncorrected_dram = 6, 5
    health.ecc_aggregate.corrected_dram, health.ecc_aggregate.uncorrected_dram = 7, 8
    for place, name in enumerate(
        ("graphics", "sm", "sm_occupancy", "tensor", "dram", "fp64", "fp32", "fp16", "integer")
    ):
        setattr(profiling, name, 50.0 + place)
    for place, name in enumerate(("dfma", "hmma", "imma")):
        setattr(profiling, f"tensor_{name}", 41.0 + place)
    profiling.pcie_tx, profiling.pcie_rx = 1.5, 2.5
    profiling.nvlink_tx, profiling.nvlink_rx = 3.5, 4.5


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, (profile, instances) in MACHINES.items():
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            bench = StandInMachine(Path(folder), profile=profile, patch=patch)
            try:
                text = page(bench, instances=instances)
                gpus = len(bench.stand_in.gpus)
            finally:
                bench.close()
        (GOLDEN / f"{name}.txt").write_text(shown(text, gpus=gpus))


if __name__ == "__main__":
    main()
