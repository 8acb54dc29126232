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
    """Unload all modules as an agent does; return the results."""
    linux = host.linux
    assert linux is not None
    results: list[str] = []
    for name in modules.UNLOAD_ORDER:
        result = await host.offload.run(lambda name=name: linux.unload(name))
        if not isinstance(result, NotLoaded):
            results.append(f"{name}: {type(result).__name__}")
    return results


def test_an_unload_takes_the_time_of_the_world_model(tmp_path: Path) -> None:
    async def main(sim: Sim) -> tuple[list[str], float]:
        world = machine(sim, tmp_path, model=SteadyWorld(unload_seconds=3.0), system=DRIVEN)
        results = await unload(world.host(InlineOffload(), changes=True))
        assert world.driver is None
        assert world.incidents == ()
        return results, sim.clock.monotonic()

    results, seconds = run(main, seed=1)
    assert results == ["nvidia_modeset: Unloaded", "nvidia_uvm: Unloaded", "nvidia: Unloaded"]
    assert seconds == 3.0


def test_a_killed_agent_holds_no_device_and_its_calls_fail(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world = machine(sim, tmp_path, system=DRIVEN)
        host, other = world.host(InlineOffload()), world.host(InlineOffload())
        await host.offload.run(host.gpus.open)
        await other.offload.run(other.gpus.open)
        assert len(holders(host.tree)) == 2
        world.kill(host)
        world.kill(host)
        assert len(holders(host.tree)) == 1
        done: list[int] = []
        with pytest.raises(AgentKilled, match=r"sluice on n1 \(boot .*\) was killed"):
            await host.offload.run(lambda: done.append(1))
        assert done == []
        await other.offload.run(other.gpus.describe)

    run(main, seed=1)


def test_unloading_a_driver_that_a_process_uses_is_a_violation(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        world = machine(sim, tmp_path, system=DRIVEN)
        # Only the files show this process; the simulation does not.
        descriptors = tmp_path / "proc/4711/fd"
        descriptors.mkdir(parents=True)
        (descriptors / "3").symlink_to("/dev/nvidia0")
        results = await unload(world.host(InlineOffload(), changes=True))
        assert results[-1] == f"nvidia: {Unloaded.__name__}"
        (incident,) = world.incidents
        assert incident.kind is IncidentKind.UNDER_A_HOLDER
        assert "process 4711" in str(incident)

    run(main, seed=1)


async def test_an_agent_on_a_real_loop_runs_calls_in_threads(tmp_path: Path) -> None:
    world = SimulatedMachine(
        tmp_path,
        name="n1",
        model=SteadyWorld(unload_seconds=0.01),
        env=make_env(),
        system=DRIVEN,
    )
    async with ThreadOffload("disk") as threads:
        try:
            host, validator = world.host(threads, changes=True), world.host(threads)
            await validator.offload.run(validator.gpus.open)
            linux = host.linux
            assert linux is not None
            unload_module = linux.unload
            calls = [host.offload.run(lambda: unload_module("nvidia_uvm")) for _ in range(8)]
            results = await asyncio.gather(*calls)
            assert sorted(type(unloaded).__name__ for unloaded in results) == ["NotLoaded"] * 7 + [
                "Unloaded"
            ]
            result = await host.offload.run(lambda: unload_module("nvidia"))
            assert isinstance(result, InUse)
            await validator.offload.run(validator.gpus.close)
            assert (await unload(host))[-1] == "nvidia: Unloaded"
        finally:
            world.power_off()
