"""Numbers that a node invents, in reports or in its own Node, stop no other node."""

import msgspec
import pytest

from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.contracts.numbers import LIMIT
from libs.contracts.reports import Beat, StateBody
from libs.contracts.subjects import Beat as BeatSubject
from services.scheduler import resources
from tests.component.scheduler.world import NEW, World, in_world


async def beat(world: World, node: str, number: int | msgspec.Raw) -> None:
    """Send a heartbeat as the driver agent, with this as its highest token and op."""
    view = await world.node(node)
    uid, boot = view.metadata.uid, view.status.node_info.boot_id
    sent = Beat(node=node, node_uid=uid, boot_id=boot, component=Writer.DRIVER, knows=("swap",))
    tree = {**msgspec.to_builtins(sent), "epoch": number, "token": number, "op": number}
    subject = BeatSubject(cluster="default", node=node, component=Writer.DRIVER)
    bus = world.connect(Writer.DRIVER, node=node)
    await bus.publish(str(subject), msgspec.json.encode(tree))
    bus.kill()


async def report(world: World, node: str, body: StateBody, kind: str) -> None:
    boot = world.machines[node].boot_id
    await world.report(node, body, writer=Writer.DRIVER, boot=boot, kind=kind)


@pytest.mark.parametrize(
    "number",
    [LIMIT, LIMIT - 1, 10**17, 10**25, msgspec.Raw(b"9" * 4_299), msgspec.Raw(b"9" * 5_000)],
    ids=["limit", "limit-1", "17-digits", "25-digits", "4299-digits", "5000-digits"],
)
@in_world
async def test_invented_tokens_and_versions_stop_no_other_node(
    world: World, number: int | msgspec.Raw
) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await world.kill_agents("a")
    await beat(world, "a", number)
    await report(world, "a", Facts(driver=LoadedDriver(version="9" * 5_000)), "facts")
    await world.apply_policy(NEW, maxParallelUpgrades=0, maxUnavailable="100%")

    async def b_is_done() -> bool:
        return world.driver_version("b") == NEW and await is_done("b")

    async def is_done(name: str) -> bool:
        return await world.state(name) == "upgrade-done"

    await world.until_written(b_is_done, within=600)
    assert scheduler.service.failure is None
    assert scheduler.value("sluice_scheduler_leading") == 1


@in_world
async def test_an_epoch_in_a_node_cannot_use_up_the_epochs(world: World) -> None:
    scheduler, target = await world.complete_first_rollout("a", "b")
    await scheduler.stop()
    uid = (await world.node("a")).metadata.uid
    record = NodeRecord(node_uid=uid, epoch=LIMIT - 1, token=1)
    change = {"metadata": {"annotations": {RECORD_ANNOTATION: encode(record).decode()}}}
    await world.patch(resources.NODES, "a", change, manager="kubelet")
    world.start()
    await world.apply_policy(NEW)

    async def b_is_done() -> bool:
        rollout = await world.rollout()
        return rollout.status.target != target and await world.state("b") == "upgrade-done"

    await world.until_written(b_is_done, within=600)
    assert (await world.rollout()).status.epoch == 2
