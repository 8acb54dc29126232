"""Deleted nodes and ended terms leave no metrics, evictions or watches behind."""

import pytest

from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS, STATE, Command, State
from libs.testing.apiserver.faults import Fault, RefuseRequest
from services.scheduler import resources
from tests.component.processes import Process
from tests.component.scheduler.world import DEPLOYED, NEW, USER, WAITING, World, in_world

COUNTS = {
    "pending": "gpu_operator_nodes_upgrades_pending",
    "done": "gpu_operator_nodes_upgrades_done",
    "available": "gpu_operator_nodes_upgrades_available",
}
NODE = "/api/v1/nodes/a"


async def blocked_upgrade(world: World) -> Process:
    """Start an upgrade of two nodes, in which a preflight finding blocks a."""
    scheduler, _ = await world.complete_first_rollout("a", "b")
    world.block_preflight("a")
    await world.apply_policy(NEW)
    await world.sleep(90)
    assert scheduler.value(WAITING, code="preflight") == 1
    return scheduler


@in_world
async def test_a_deleted_node_is_not_counted_as_waiting(world: World) -> None:
    scheduler = await blocked_upgrade(world)
    await world.power_off("a")
    await world.kube.request("DELETE", NODE, body={})
    await world.sleep(30)
    assert scheduler.value(WAITING, code="preflight") == 0
    assert scheduler.value(COUNTS["pending"]) == 0


@in_world
async def test_a_recreated_node_does_not_inherit_the_wait(world: World) -> None:
    scheduler = await blocked_upgrade(world)
    before = await world.why("a")
    assert before.history
    await world.kill_agents()
    fault = Fault(effect=RefuseRequest(500), verbs=("list", "watch"), kind="Node", user=USER)
    world.server.faults.add(fault)
    world.server.faults.drop_watches(kind="Node", user=USER)
    await world.kube.request("DELETE", NODE, body={})
    world.cluster.fleet["a"].register()
    await world.sleep(5)
    world.server.faults.clear()
    await world.sleep(60)
    now = await world.why("a")
    assert now.node_uid != before.node_uid
    assert not set(before.history) & set(now.history)
    assert scheduler.value(WAITING, code="preflight") == 0


@in_world
async def test_a_former_leader_has_no_node_metrics_and_lists_no_pods(world: World) -> None:
    first = await blocked_upgrade(world)
    other = world.start()
    await world.sleep(5)
    watches = world.server.open_watches
    await world.move_lease(other)
    await world.sleep(120)
    leading = [each.value("sluice_scheduler_leading") for each in (first, other)]
    assert leading == [0, 1]
    assert world.server.open_watches == watches
    for process, waiting, pending in ((first, 0, 0), (other, 1, 1)):
        assert process.value(WAITING, code="preflight") == waiting
        assert process.value(COUNTS["pending"]) == pending
    assert [first.value(COUNTS[each]) for each in ("done", "available")] == [0, 0]


async def has_slot_and_report(world: World) -> list[bool]:
    """Return whether the bus has a slot and a report of a."""
    slot = Command(cluster="default", node="a", component="driver")
    report = State(cluster="default", node="a", component="driver", kind="facts")
    reader = world.bus.connect(Identity(writer=Writer.SCHEDULER))
    try:
        found = [await reader.last(COMMANDS, str(slot)), await reader.last(STATE, str(report))]
    finally:
        reader.kill()
    return [each is not None for each in found]


@in_world
async def test_a_deleted_node_is_purged_from_the_bus(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await world.kill_agents()
    assert await has_slot_and_report(world) == [True, True]
    await world.power_off("a")
    await world.kube.request("DELETE", NODE, body={})
    await world.sleep(30)
    assert await has_slot_and_report(world) == [False, False]
    assert scheduler.value(COUNTS["done"]) == 1


@pytest.mark.parametrize("condition", ["there is no leader", "the bus is away"])
@in_world
async def test_a_failed_purge_is_retried(world: World, condition: str) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await world.kill_agents()
    assert await has_slot_and_report(world) == [True, True]
    if condition == "there is no leader":
        await scheduler.kill()
    world.bus.stop()
    await world.power_off("a")
    await world.kube.request("DELETE", NODE, body={})
    await world.sleep(60)
    world.bus.start()
    assert await has_slot_and_report(world) == [True, True]
    if condition == "there is no leader":
        scheduler = world.start()
    await world.sleep(120)
    assert await has_slot_and_report(world) == [False, False]
    slot = Command(cluster="default", node="b", component="driver")
    assert await scheduler.bus.last(COMMANDS, str(slot)) is not None


@in_world
async def test_evictions_end_when_a_node_is_no_longer_managed(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    world.server.faults.add(Fault(effect=RefuseRequest(500), verbs=("evict",), kind="Pod"))
    await world.apply_policy(NEW)
    await world.sleep(10)
    assert await world.state("a") == "pod-deletion-required"
    node = await world.node("a")
    labels = dict.fromkeys([*DEPLOYED, *node.metadata.labels])
    annotations = dict.fromkeys(node.metadata.annotations)
    metadata = {"labels": labels, "annotations": annotations}
    stripped = {"metadata": metadata, "spec": {"unschedulable": None}}
    await world.patch(resources.NODES, "a", stripped)
    await world.sleep(5)
    counter = {"kind": "eviction", "outcome": "failed"}
    attempts = scheduler.value("sluice_scheduler_api_writes_total", **counter)
    assert attempts
    await world.sleep(120)
    assert scheduler.value("sluice_scheduler_api_writes_total", **counter) == attempts
