"""The agent's program reports the verdict over a NATS server, and keeps it in a file."""

from pathlib import Path

from libs.bus.reports import ReportCache
from libs.contracts.health import Health, HealthState
from libs.contracts.identities import Writer
from libs.contracts.reports import StateKind
from libs.runtime.clock import SystemClock
from services.health_file import NAME, HealthFile, Kept
from tests.builders.fake_machine import BOOT
from tests.component.gpus.machine import StandInMachine
from tests.component.gpus.test_agents import agent_on
from tests.support import eventually


async def test_a_gpu_that_hangs_is_reported_and_kept(bench: StandInMachine, tmp_path: Path) -> None:
    bench.stand_in.gpus[3].hang()
    folder = tmp_path / "state"
    async with (
        agent_on(bench, tmp_path) as agent,
        agent.programs.connect(Writer.SCHEDULER) as bus,
        ReportCache(bus=bus, clock=SystemClock(), cluster="default") as reports,
    ):
        await agent.measures(7)
        await eventually(
            lambda: reports.get("a", Writer.TELEMETRY, StateKind.HEALTH) is not None, within=60
        )
        report = reports.get("a", Writer.TELEMETRY, StateKind.HEALTH)
        assert report is not None
        health = report.open()
        assert isinstance(health, Health)
        failed = [gpu.index for gpu in health.gpus if gpu.state is HealthState.FAILED]
        assert (len(health.gpus), failed) == (8, [3])
        assert (folder / NAME).stat().st_mode & 0o777 == 0o600
        records = HealthFile.beside_journal(folder).read(boot_id=BOOT).gpus
        assert [record.index for record in records if record.tracks] == [3]
        assert HealthFile.beside_journal(folder).read(boot_id="another boot") == Kept()
