"""Agents of a simulated machine: calls that take time, kills and violations."""

from pathlib import Path

import pytest

from libs.host import modules
from libs.host.holders import holders
from libs.host.linux import NotLoaded, Unloaded
from libs.host.machine import InlineOffload
from libs.host.machine import Machine as HostMachine
from libs.testing.machines.agent_process import AgentKilled
from libs.testing.machines.base_files import System
from libs.testing.machines.state import IncidentKind
from libs.testing.simulation import Sim
from tests.support import in_virtual_time
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


@in_virtual_time
async def test_a_killed_agent_holds_no_device_and_its_calls_fail(sim: Sim, tmp_path: Path) -> None:
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


@in_virtual_time
async def test_unloading_a_driver_that_a_process_uses_is_a_violation(
    sim: Sim, tmp_path: Path
) -> None:
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
