"""A driver pod that keeps its label is deleted by uid, once; its DaemonSet creates another."""

import pytest

from libs.contracts.journal import Revision
from libs.contracts.node import DRIVER_LABEL
from libs.kube.views import Metadata
from libs.testing.apiserver.faults import Fault, RefuseRequest
from services.scheduler import resources
from tests.builders.objects import pod
from tests.component.processes import NAMESPACE
from tests.component.scheduler.world import USER, World, in_world


def deletions(world: World) -> list[Revision]:
    return [each for each in world.revisions("Pod") if each.verb == "delete"]


async def driver_pod(world: World) -> Metadata:
    """Return the metadata of the only driver pod."""
    pods = await world.kube.list_page(resources.PODS, namespace=NAMESPACE, labels=DRIVER_LABEL)
    (pod,) = pods.items
    return pod.metadata


@in_world
async def test_a_requested_restart_deletes_the_driver_pod(world: World) -> None:
    await world.complete_first_rollout("a")
    before = await driver_pod(world)
    await world.request_upgrade("a")
    await world.until_state("a", "pod-restart-required")
    await world.until_state("a", "upgrade-done")
    (deletion,) = deletions(world)
    assert (deletion.uid, deletion.code) == (before.uid, 200)
    after = await driver_pod(world)
    assert after.labels == before.labels
    assert after.uid != before.uid
    assert (world.swaps("a"), world.unloads("a")) == (2, 1)


@pytest.mark.parametrize("is_gone", [False, True])
@in_world
async def test_a_driver_pod_is_deleted_once_while_the_watch_is_stalled(
    world: World, is_gone: bool
) -> None:
    await world.complete_first_rollout("a")
    before = await driver_pod(world)
    await world.request_upgrade("a")
    await world.until_state("a", "pod-deletion-required")
    stalled = Fault(effect=RefuseRequest(500), verbs=("list", "watch"), kind="Pod", user=USER)
    world.server.faults.add(stalled)
    world.server.faults.drop_watches(kind="Pod", user=USER)
    if is_gone:
        name, uid = before.name, before.uid
        await world.kube.delete(resources.PODS, name, namespace=NAMESPACE, uid=uid, grace=0)
    await world.until_state("a", "pod-restart-required")
    await world.sleep(30)
    assert len(deletions(world)) == 1
    world.server.faults.clear()
    await world.until_state("a", "upgrade-done")
    assert len(deletions(world)) == 1


@in_world
async def test_a_pod_of_the_same_name_as_the_old_driver_pod_is_not_deleted(world: World) -> None:
    await world.complete_first_rollout("a")
    before = await driver_pod(world)
    await world.request_upgrade("a")
    await world.until_state("a", "pod-deletion-required")
    stalled = Fault(effect=RefuseRequest(500), verbs=("list", "watch"), kind="Pod", user=USER)
    world.server.faults.add(stalled)
    world.server.faults.drop_watches(kind="Pod", user=USER)
    name, uid = before.name, before.uid
    await world.kube.delete(resources.PODS, name, namespace=NAMESPACE, uid=uid, grace=0)
    created = await world.kube.create(resources.PODS, pod(name, node="a"), namespace=NAMESPACE)
    await world.until_state("a", "pod-restart-required")
    await world.sleep(30)
    assert [each.code for each in deletions(world)] == [409]
    kept = await world.kube.get(resources.PODS, name, namespace=NAMESPACE)
    assert kept.metadata.uid == created.metadata.uid
    assert not kept.metadata.deletion_timestamp
    world.server.faults.clear()
    await world.until_state("a", "upgrade-done")
