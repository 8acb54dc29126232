"""The op `mig` on a simulated machine, whose other agents see what it did."""

from pathlib import Path

from libs.contracts.commands import GpuGeometry, Mig
from libs.contracts.reports import Outcome, Result
from libs.host.machine import InlineOffload
from libs.testing.machines.base_files import System
from libs.testing.machines.machine import SimulatedMachine
from tests.unit.driver.node.mig_world import (
    MIXED,
    OFF,
    SEVEN,
    VERSION,
    MigWorld,
    facts,
    in_world,
    uuids_of,
)
from tests.unit.testing.machines.builders import machine


class Simulated:
    """A simulated machine with the driver agent and another one."""

    def __init__(self, world: MigWorld, simulated: SimulatedMachine) -> None:
        self._world = world
        self._machine = simulated
        host = simulated.host(InlineOffload(), comm="driver", changes=True)
        world.machine.machine = host
        world.driver.gpus = host.gpus  # type: ignore[assignment]
        self.other = simulated.host(InlineOffload(), comm="telemetry").gpus

    async def divide(self, names: tuple[str, ...] | None) -> Result:
        (uuid, *_) = uuids_of(self.other)
        geometry = GpuGeometry(uuid=uuid, index=0, mig=names is not None, profiles=names or ())
        async with self._world.agent():
            order = await self._world.send_command(
                Mig(config="test", digest="d", gpus=(geometry,)), boot=self._machine.boot_id
            )
            return await self._world.wait_for_result(order)


@in_world
async def test_other_agents_see_the_geometry_which_a_reboot_drops(
    world: MigWorld, tmp_path: Path
) -> None:
    simulated = machine(world.sim, tmp_path, gpus=2, system=System(driver=VERSION))
    for wanted in (SEVEN, MIXED, OFF, MIXED):
        node = Simulated(world, simulated)
        assert (await node.divide(wanted)).outcome is Outcome.DONE
        assert facts(node.other) == [wanted, OFF]
    assert await simulated.reboot()
    node = Simulated(world, simulated)
    assert facts(node.other) == [OFF, OFF]
    assert (await node.divide(MIXED)).outcome is Outcome.DONE
    assert facts(node.other) == [MIXED, OFF]


@in_world
async def test_a_process_with_the_gpu_open_is_named(world: MigWorld, tmp_path: Path) -> None:
    simulated = machine(world.sim, tmp_path, gpus=2, system=System(driver=VERSION))
    node = Simulated(world, simulated)
    pid = simulated.start_process(0, comm="Xorg")
    result = await node.divide(SEVEN)
    assert (result.outcome, result.code) == (Outcome.FAILED, "in-use")
    assert f"Xorg (pid {pid})" in result.message
    assert facts(node.other) == [OFF, OFF]
    simulated.end_process(pid)
    assert (await node.divide(SEVEN)).outcome is Outcome.DONE
