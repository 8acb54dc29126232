"""Planted faults are found on real nodes: in the gate, and in the evidence."""

import asyncio
import uuid

from libs.testing.image.agent_program import OPEN_GATE
from libs.testing.image.driver_settings import DriverSettings
from libs.testing.realnodes.machine import NodeMachine
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.world import NEW, OLD, World

pytestmark = SOAK_ONLY

RUNS_WITHIN = 240.0
NOTICED_WITHIN = 20.0


async def test_a_gate_that_admits_any_pod_is_found(world: World) -> None:
    for machine in world.machines:
        machine.set_driver(OLD, DriverSettings(end_seconds=5.0))
        await machine.node.run("mkdir", "-p", OPEN_GATE)
    await world.apply_policy(OLD)
    await world.until_all_run(OLD, within=RUNS_WITHIN)
    await world.apply_policy(NEW)
    async with asyncio.timeout(RUNS_WITHIN):
        while not any("another driver runs" in line for line in incidents(world)):
            await asyncio.sleep(0.5)
    assert any("before the gate was opened" in line for line in incidents(world))


async def test_evidence_of_an_earlier_boot_is_found(world: World) -> None:
    machine = world.machines[1]
    await world.apply_policy(OLD)
    await world.until_all_run(OLD, within=RUNS_WITHIN)
    assert await is_reboot_noticed(world, machine)
    await world.until_all_run(OLD, within=RUNS_WITHIN)
    await world.installation.replace_scheduler("tests.system.upgrade.planted_scheduler")
    await asyncio.sleep(NOTICED_WITHIN)  # until the lease of the killed one has ended
    await world.until_all_run(OLD, within=RUNS_WITHIN)
    assert not await is_reboot_noticed(world, machine)


def incidents(world: World) -> list[str]:
    return [line for machine in world.machines for line in machine.incidents()]


async def is_reboot_noticed(world: World, machine: NodeMachine) -> bool:
    """Whether a node is not in place once it has another boot, before its pods have started again.

    The kubelet rests meanwhile, as if it had said no more than that.
    """
    kubelet = (await machine.node.run("cat", "/run/kubelet.pid")).strip()
    await machine.node.run("kill", "-STOP", kubelet)
    try:
        await world.kubectl.run(
            *(
                "patch",
                "node",
                machine.node.name,
                "--subresource=status",
                "--type=merge",
                "--patch",
            ),
            f'{{"status": {{"nodeInfo": {{"bootID": "{uuid.uuid4()}"}}}}}}',
        )
        for _ in range(int(NOTICED_WITHIN)):
            if not await world.is_in_place(machine):
                return True
            await asyncio.sleep(1.0)
        return False
    finally:
        await machine.node.run("kill", "-CONT", kubelet)
