"""Time that the kernel takes, and agents that are killed."""

import asyncio
from pathlib import Path

import pytest

from libs.forecast.world import RUNS_FOREVER, ProcessEnd, SteadyWorld, WorldOverride
from libs.host import modules
from libs.host.holders import holders
from libs.host.linux import InUse, NotLoaded, Unloaded
from libs.host.machine import InlineOffload, ThreadOffload
from libs.host.machine import Machine as HostMachine
from libs.testing.env import make_env
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.incidents import IncidentKind
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.machines.system import System
from libs.testing.simulation import Sim, run
from tests.unit.testing.machines.builders import machine, uid

DRIVEN = System(driver="580.95.05")


async def unload(host: HostMachine) -> list[str]:
    """As an agent does it; what each answer was."""
    linux = host.linux
    assert linux is not None
    answers: list[str] = []
    for name in modules.UNLOAD_ORDER:
        answer = await host.offload.do(lambda name=name: linux.unload(name))
        if not isinstance(answer, NotLoaded):
            answers.append(f"{name}: {type(answer).__name__}")
    return answers


def test_unloading_takes_as_long_as_the_world_says(tmp_path: Path) -> None:
    async def main(sim: Sim) -> tuple[list[str], float]:
        there = machine(sim, tmp_path, model=SteadyWorld(unload_seconds=3.0), system=DRIVEN)
        answers = await unload(there.host(InlineOffload(), changes=True))
        assert there.driver is None
        assert there.incidents == ()
        return answers, sim.clock.monotonic()

    answers, took = run(main, seed=1)
    assert answers == ["nvidia_modeset: Unloaded", "nvidia_uvm: Unloaded", "nvidia: Unloaded"]
    assert took == 3.0


def test_an_agent_that_holds_the_gpus_is_in_its_own_way(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, system=DRIVEN)
        telemetry = there.host(InlineOffload(), comm="sluice-telemetry", pod_uid=uid("telemetry"))
        driver = there.host(InlineOffload(), changes=True)
        await telemetry.offload.do(telemetry.gpus.open)
        (holder,) = holders(driver.tree)
        assert (holder.comm, holder.pod_uid) == ("sluice-telemetr", uid("telemetry"))
        assert (await unload(driver))[-1] == "nvidia: InUse"
        assert sim.clock.monotonic() == 0.0
        await telemetry.offload.do(telemetry.gpus.close)
        assert await unload(driver) == ["nvidia: Unloaded"]

    run(main, seed=1)


def test_a_world_in_which_somebody_unknown_is_in_the_way_at_first(tmp_path: Path) -> None:
    async def main(sim: Sim) -> list[str]:
        busy = WorldOverride(unload=ProcessEnd(20.0, 1), first_attempts=1)
        there = machine(sim, tmp_path, model=SteadyWorld(overrides=(busy,)), system=DRIVEN)
        host = there.host(InlineOffload(), changes=True)
        answers = [*await unload(host), f"{sim.clock.monotonic()}", *await unload(host)]
        return answers[2:]

    assert run(main, seed=1) == ["nvidia: InUse", "20.0", "nvidia: Unloaded"]


def test_an_unload_that_hangs_ends_with_the_agent(tmp_path: Path) -> None:
    async def main(sim: Sim) -> tuple[float, bool]:
        model = SteadyWorld(overrides=(WorldOverride(unload=RUNS_FOREVER),))
        there = machine(sim, tmp_path, model=model, system=DRIVEN)
        host = there.host(InlineOffload(), changes=True)
        agent = asyncio.create_task(unload(host))
        await sim.clock.sleep(500)
        assert not agent.done()
        there.kill(host)
        with pytest.raises(AgentKilled):
            await agent
        return sim.clock.monotonic(), there.driver is not None

    assert run(main, seed=1) == (500.0, True)


def test_who_is_killed_holds_nothing_and_reaches_nothing(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, system=DRIVEN)
        host, other = there.host(InlineOffload()), there.host(InlineOffload())
        await host.offload.do(host.gpus.open)
        await other.offload.do(other.gpus.open)
        assert len(holders(host.tree)) == 2
        there.kill(host)
        there.kill(host)
        assert len(holders(host.tree)) == 1
        done: list[int] = []
        with pytest.raises(AgentKilled, match=r"sluice on n1, of boot .*, was killed"):
            await host.offload.do(lambda: done.append(1))
        assert done == []
        await other.offload.do(other.gpus.describe)

    run(main, seed=1)


def test_a_kill_in_the_middle_of_a_call_is_noticed_at_its_end(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, model=SteadyWorld(unload_seconds=3.0), system=DRIVEN)
        host = there.host(InlineOffload(), changes=True)
        agent = asyncio.create_task(unload(host))
        await sim.clock.sleep(1)
        there.kill(host)
        with pytest.raises(AgentKilled):
            await agent
        assert there.driver is None

    run(main, seed=1)


def test_an_error_takes_its_time_too_and_arrives(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        host = machine(sim, tmp_path).host(InlineOffload())
        with pytest.raises(ZeroDivisionError):
            await host.offload.do(lambda: 1 // 0)

    run(main, seed=1)


def test_who_may_not_change_the_machine_has_no_kernel(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        assert machine(sim, tmp_path).host(InlineOffload()).linux is None

    run(main, seed=1)


def test_a_reboot_kills_all_agents(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, model=SteadyWorld(boot_seconds=90.0), system=DRIVEN)
        host = there.host(InlineOffload(), changes=True)
        assert await there.reboot()
        with pytest.raises(AgentKilled):
            await unload(host)
        assert await unload(there.host(InlineOffload(), changes=True))

    run(main, seed=1)


def test_a_driver_that_leaves_under_a_process_is_written_down(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, system=DRIVEN)
        # A process of which only the files know.
        place = tmp_path / "proc/4711/fd"
        place.mkdir(parents=True)
        (place / "3").symlink_to("/dev/nvidia0")
        answers = await unload(there.host(InlineOffload(), changes=True))
        assert answers[-1] == f"nvidia: {Unloaded.__name__}"
        (oddity,) = there.incidents
        assert oddity.kind is IncidentKind.UNDER_A_HOLDER
        assert "process 4711" in str(oddity)

    run(main, seed=1)


async def test_in_a_process_the_work_is_done_in_threads(tmp_path: Path) -> None:
    there = SimulatedMachine(
        tmp_path,
        name="n1",
        model=SteadyWorld(unload_seconds=0.01),
        env=make_env(),
        system=DRIVEN,
    )
    async with ThreadOffload("disk") as threads:
        try:
            host, watching = there.host(threads, changes=True), there.host(threads)
            await watching.offload.do(watching.gpus.open)
            linux = host.linux
            assert linux is not None
            take_out = linux.unload
            asked = [host.offload.do(lambda: take_out("nvidia_uvm")) for _ in range(8)]
            answers = await asyncio.gather(*asked)
            assert sorted(type(each).__name__ for each in answers) == ["NotLoaded"] * 7 + [
                "Unloaded"
            ]
            answer = await host.offload.do(lambda: take_out("nvidia"))
            assert isinstance(answer, InUse)
            await watching.offload.do(watching.gpus.close)
            assert (await unload(host))[-1] == "nvidia: Unloaded"
        finally:
            there.power_off()
