"""The agents' programs on a machine whose driver hangs: they report, answer and end."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.identities import Writer
from libs.contracts.reports import Outcome
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.port import GpuHandle
from libs.host.machine import Machine, ThreadOffload
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from libs.runtime.metrics import Metrics
from libs.testing.child_process import ChildProcess
from libs.testing.nvml import library
from services.telemetry.node.sampler import STALE_AFTER, Sampler, Sweep, TelemetryMetrics
from tests.builders.fake_machine import FakeMachine
from tests.component.command_sender import NODE, CommandSender
from tests.component.gpus.freezer import Freezer
from tests.component.gpus.machine import StandInMachine, with_machine
from tests.component.programs import Programs, address_of, run_programs
from tests.support import eventually


@asynccontextmanager
async def agent_on(bench: StandInMachine, folder: Path, **settings: str) -> AsyncGenerator["Agent"]:
    """Run the telemetry agent on the machine."""
    async with run_programs(folder) as programs:
        FakeMachine(bench.root).set_modules("nvidia")
        await programs.create_streams()
        child = await programs.start_agent(
            "telemetry",
            host=bench.root,
            exporter_host="127.0.0.1",
            exporter_port="0",
            environ=bench.stand_in.environment,
            **NODE,
            **{"nvml_library": str(library()), **settings},
        )
        async with aiohttp.ClientSession() as session:
            yield Agent(programs, child, session)


class Agent:
    def __init__(
        self, programs: Programs, child: ChildProcess, session: aiohttp.ClientSession
    ) -> None:
        self.programs = programs
        self.child = child
        self.send = CommandSender(programs, Writer.TELEMETRY).send
        self._session = session

    async def get(self, server: str, page: str) -> str:
        url = await address_of(self.child, server)
        async with self._session.get(f"{url}/{page}") as response:
            return await response.text()

    async def measures(self, count: int) -> None:
        async def is_measured() -> bool:
            page = await self.get("exporter", "metrics")
            return page.count("\nDCGM_FI_DEV_GPU_TEMP{") == count

        await eventually(is_measured, within=60, every=0.1)

    async def says(self, text: str) -> None:
        async def is_said() -> bool:
            return text in await self.get("probe server", "readyz")

        await eventually(is_said, within=60, every=0.1)

    async def ends_before(self, freezer: Freezer) -> None:
        """Stop the agent, whose frozen process lives on."""
        process = Path(f"/proc/{self.child.pid}")
        end = asyncio.create_task(self.child.end(signal.SIGTERM, code=0))
        await eventually(lambda: not process.exists(), within=60, every=0.05)
        freezer.thaw()  # it has the agent's standard error, for the end of which a test waits
        await end

    def nvml_processes(self) -> list[int]:
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
        tasks = Path(f"/proc/{self.child.pid}/task").glob("*/children")
        assert children.exists()
        return [int(pid) for file in tasks for pid in file.read_text().split()]


async def test_gpus_are_served_while_one_hangs_and_the_agent_ends(
    bench: StandInMachine, tmp_path: Path
) -> None:
    bench.stand_in.gpus[3].hang()
    async with agent_on(bench, tmp_path) as agent:
        await agent.measures(7)
        assert len(agent.nvml_processes()) == 1
        await agent.child.end(signal.SIGTERM, code=0)


async def test_an_agent_whose_library_does_not_open_answers_and_ends(
    bench: StandInMachine, tmp_path: Path
) -> None:
    unopened = tmp_path / "libnvidia-ml.so.1"
    os.mkfifo(unopened)  # it opens once somebody writes to it
    async with agent_on(bench, tmp_path, nvml_library=str(unopened)) as agent:
        await eventually(lambda: len(agent.nvml_processes()) == 1, within=60, every=0.05)
        await agent.says("have not been sampled yet")
        await agent.child.end(signal.SIGTERM, code=0)


async def test_a_driver_that_hangs_fails_the_quiesce_and_not_the_agent(
    bench: StandInMachine, tmp_path: Path, freezer: Freezer
) -> None:
    async with agent_on(bench, tmp_path) as agent:
        await agent.measures(8)
        freezer.freeze(*agent.nvml_processes())
        result = await agent.send(Quiesce())
        assert (result.outcome, result.code) == (Outcome.FAILED, "devices-open")
        assert result.message.startswith(REMEDIES[GpuProblem.DRIVER_HUNG])
        await agent.ends_before(freezer)


async def test_quiesce_closes_every_device(bench: StandInMachine, tmp_path: Path) -> None:
    async with agent_on(bench, tmp_path) as agent:
        await agent.measures(8)
        assert len(agent.nvml_processes()) == 1
        assert (await agent.send(Quiesce())).outcome is Outcome.DONE
        assert agent.nvml_processes() == []
        await agent.child.end(signal.SIGTERM, code=0)


async def test_while_all_calls_hang_behind_one_lock_the_agent_answers_and_all_is_back_after_it(
    bench: StandInMachine, tmp_path: Path
) -> None:
    async with agent_on(bench, tmp_path) as agent:
        await agent.measures(8)
        bench.stand_in.machine.one_lock = 1
        bench.stand_in.gpus[3].hang()
        await agent.send(Idle())  # it sweeps at once
        await agent.says("NVML did not answer in time")
        assert (await agent.send(Quiesce())).outcome is Outcome.DONE
        assert agent.nvml_processes() == []
        bench.stand_in.gpus[3].release()
        bench.stand_in.machine.one_lock = 0
        await agent.send(Idle())
        await agent.measures(8)
        bench.stand_in.machine.one_lock = 1
        bench.stand_in.gpus[3].hang()
        await agent.child.end(signal.SIGTERM, code=0)


@with_machine(deadlines=Deadlines(open=600.0, kill=20.0))
async def test_a_release_ends_a_sweep_that_hangs(bench: StandInMachine) -> None:
    async with ThreadOffload("test") as offload:
        host = Machine(tree=Tree(bench.root), offload=offload, gpus=bench.gpus)
        hold, clock = GpuHandle(bench.gpus), SystemClock()
        metrics = TelemetryMetrics(Metrics(version="0"))
        sampler = Sampler(
            machine=host, hold=hold, clock=clock, metrics=metrics, on_sweep=judge_nothing
        )
        bench.freeze_next()
        sweep = asyncio.create_task(sampler.sweep())
        await eventually(lambda: bool(bench.processes))
        await sampler.release()
        await sweep
        (process,) = bench.processes
        assert process.has_ended()
        assert not bench.held()
        assert sampler.problem == "the GPUs are released while the driver changes"


async def judge_nothing(_sweep: Sweep | None, _xids: Mapping[str, tuple[int, ...]]) -> None: ...


def test_a_hang_is_named_after_fifteen_seconds_and_before_a_sweep_is_stale() -> None:
    deadlines = Deadlines()
    assert deadlines.late < 0.5 < deadlines.answer < deadlines.hung == 15.0
    assert deadlines.answer + deadlines.running + deadlines.kill < 5.5
    assert max(deadlines.first, deadlines.hung) + deadlines.answer < STALE_AFTER


async def test_the_page_follows_the_list_of_metrics(bench: StandInMachine, tmp_path: Path) -> None:
    listed = tmp_path / "dcgm-metrics.csv"
    listed.write_text(
        "DCGM_FI_DEV_GPU_TEMP, gauge, Warm.\n"
        "DCGM_FI_DEV_WARMTH, gauge, x\n"
        "DCGM_FI_DEV_SERIAL, label, Number.\n"
    )
    settings = {"metric_list": str(listed), "hostname_label": "hostname"}
    async with agent_on(bench, tmp_path, **settings) as agent:
        await agent.measures(8)
        page = await agent.get("exporter", "metrics")
        assert page.count("# TYPE") == 1
        serial = bench.stand_in.gpus[7].state.identity.serial.decode()
        assert f',hostname="a",DCGM_FI_DEV_SERIAL="{serial}"}}' in page
        own = await agent.get("metrics server", "metrics")
        assert "\nsluice_telemetry_metric_list_errors_total 1.0\n" in own
        listed.write_text("DCGM_FI_DEV_PSTATE, gauge, State.\n")

        async def is_followed() -> bool:
            return "\nDCGM_FI_DEV_PSTATE{" in await agent.get("exporter", "metrics")

        await eventually(is_followed, within=60, every=0.2)
        await agent.child.end(signal.SIGTERM, code=0)
