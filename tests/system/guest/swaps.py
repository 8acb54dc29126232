"""The driver agent on the guest's own kernel, with a bus in memory and virtual time. Run in it."""

from collections.abc import Callable

from libs.contracts.commands import Swap
from libs.contracts.reports import Result
from libs.host import driver_files, gate, system
from libs.host.gate import GateAnswer, GateRequest
from libs.host.linux import RealLinux
from libs.host.machine import InlineOffload, Machine
from libs.host.tree import Tree
from libs.testing.guest import actions
from tests.unit.driver.node.world import World, play

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
SWAP = Swap(label="d-2", old_pod_uid=OLD)
HOST = Tree("/")


def swap_until(deadline: float, load: Callable[[], None] = actions.load_driver) -> Result:
    """Let the agent replace the driver; the new one is loaded once its pod is admitted."""
    results: list[Result] = []

    async def story(world: World) -> None:
        _give_kernel(world)
        gate.put_answer(HOST, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
        async with world.agent():
            boot = system.boot_id(HOST)
            order = await world.send_command(SWAP, deadline=deadline, boot=boot)
            request = GateRequest(pod_uid=NEW, label="d-2", started=world.clock.now())
            gate.put_request(HOST, request)
            await world.until(lambda: world.result(order) or gate.is_open(HOST, request))
            if not world.result(order):
                load()
                HOST.write(driver_files.READY, b"")
            results.append(await world.wait_for_result(order))

    try:
        play(story)
    finally:
        for uid in (OLD, NEW):
            gate.remove_pod(HOST, uid)
        driver_files.clear(HOST)
    return results[0]


def _give_kernel(world: World) -> None:
    linux = RealLinux(HOST, change_this_machine=True)
    gpus = world.machine.machine.gpus
    world.machine.machine = Machine(tree=HOST, offload=InlineOffload(), gpus=gpus, linux=linux)
