"""Agents of a simulated machine: calls that take time, kills and violations."""

import asyncio
from pathlib import Path

import pytest

from libs.host import modules
from libs.host.holders import holders
from libs.host.linux import InUse, NotLoaded, Unloaded
from libs.host.machine import InlineOffload, ThreadOffload
from libs.host.machine import Machine as HostMachine
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.base_files import System
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.machines.state import IncidentKind
from libs.testing.simulation import Sim, make_env, run
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.testing.machines.builders import machine

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


def test_an_unload_takes_the_time_of_the_world_model(tmp_path: Path) -> None:
    async def main(sim: Sim) -> tuple[list[str], float]:
        world = machine(sim, tmp_path, model=SteadyWorld(unload_seconds=3.0), system=DRIVEN)
        answers = await unload(world.host(InlineOffload(), changes=True))
        assert world.driver is None
        assert world.incidents == ()
        return answers, sim.clock.monotonic()

    answers, took = run(main, seed=1)
    assert answers == ["nvidia_modeset: Unloaded", "nvidia_uvm: Unloaded", "nvidia: Unloaded"]
    assert took == 3.0


def test_a_killed_agent_holds_no_device_and_its_calls_fail(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world = machine(sim, tmp_path, system=DRIVEN)
        host, other = world.host(InlineOffload()), world.host(InlineOffload())
        await host.offload.do(host.gpus.open)
        await other.offload.do(other.gpus.open)
        assert len(holders(host.tree)) == 2
        world.kill(host)
        world.kill(host)
        assert len(holders(host.tree)) == 1
        done: list[int] = []
        with pytest.raises(AgentKilled, match=r"sluice on n1 \(boot .*\) was killed"):
            await host.offload.do(lambda: done.append(1))
        assert done == []
        await other.offload.do(other.gpus.describe)

    run(main, seed=1)


def test_a_driver_that_leaves_under_a_process_is_a_violation(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world = machine(sim, tmp_path, system=DRIVEN)
        # A process of which only the files know.
        place = tmp_path / "proc/4711/fd"
        place.mkdir(parents=True)
        (place / "3").symlink_to("/dev/nvidia0")
        answers = await unload(world.host(InlineOffload(), changes=True))
        assert answers[-1] == f"nvidia: {Unloaded.__name__}"
        (oddity,) = world.incidents
        assert oddity.kind is IncidentKind.UNDER_A_HOLDER
        assert "process 4711" in str(oddity)

    run(main, seed=1)


async def test_a_process_of_its_own_runs_calls_in_threads(tmp_path: Path) -> None:
    world = SimulatedMachine(
        tmp_path,
        name="n1",
        model=SteadyWorld(unload_seconds=0.01),
        env=make_env(),
        system=DRIVEN,
    )
    async with ThreadOffload("disk") as threads:
        try:
            host, watching = world.host(threads, changes=True), world.host(threads)
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
            world.power_off()
