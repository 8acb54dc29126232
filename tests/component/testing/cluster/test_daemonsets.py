"""DaemonSets of the simulated cluster: placement and replacement of pods."""

import itertools

from libs.forecast.world import ProcessEnd
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.cluster.cluster import INFORMERS_USER
from libs.testing.cluster.daemonset_controller import USER as DAEMON_SETS_USER
from libs.testing.cluster.views import DAEMON_SETS, REVISIONS
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.builders.objects import container, daemon_set
from tests.component.testing.cluster.world import (
    NAMESPACE,
    ClusterWorld,
    in_cluster,
)

OLD = {"driver": "old"}


@in_cluster(3, labels=OLD)
async def test_a_controller_with_a_stale_cache_creates_and_deletes_each_pod_once(
    world: ClusterWorld,
) -> None:
    """The controller counts its own writes before its cache has them."""
    server, user = world.server, INFORMERS_USER
    deaf = Fault(effect=RefuseRequest(500), verbs=("list", "watch"), kind="Pod", user=user)
    fault = server.faults.add(deaf)
    server.faults.drop_watches(kind="Pod", user=user)
    await world.create(DAEMON_SETS, daemon_set(selector=OLD))
    for number in range(5):
        await _annotate(world, number)
    await world.ready("d", 3)
    await world.label("n1", {"driver": None})
    for number in range(5, 10):
        await _annotate(world, number)
    server.faults.remove(fault)
    await world.sleep(60)
    assert len(await world.pods("d")) == 2
    mine = {"user": DAEMON_SETS_USER, "kind": "Pod"}
    assert (
        len(world.journal(verb="create", **mine)),
        len(world.journal(verb="delete", **mine)),
    ) == (3, 1)


async def _annotate(world: ClusterWorld, number: int) -> None:
    """Change the DaemonSet, so that the controller reconciles it."""
    annotations = {"seen": str(number)}
    await world.change(DAEMON_SETS, "d", {"metadata": {"annotations": annotations}})
    await world.sleep(1)


@in_cluster(2)
async def test_orphaned_pods_are_adopted_by_the_next_daemon_set_of_the_name(
    world: ClusterWorld,
) -> None:
    first = await world.create(DAEMON_SETS, daemon_set())
    await world.ready("d", 2)
    uids = {pod.metadata.uid for pod in await world.pods("d")}
    await world.delete(DAEMON_SETS, "d", policy="Orphan")
    await world.sleep(60)
    orphans = await world.pods("d")
    assert {pod.metadata.uid for pod in orphans} == uids
    assert all(pod.ready and pod.metadata.owner is None for pod in orphans)

    second = await world.create(DAEMON_SETS, daemon_set())
    await world.sleep(60)
    adopted = await world.pods("d")
    assert {pod.metadata.uid for pod in adopted} == uids
    owners = {pod.metadata.owner.uid for pod in adopted if pod.metadata.owner}
    assert owners == {second.metadata.uid} != {first.metadata.uid}


@in_cluster(2)
async def test_pods_of_a_recreated_daemon_set_are_collected(world: ClusterWorld) -> None:
    await world.create(DAEMON_SETS, daemon_set())
    await world.ready("d", 2)
    old = {pod.metadata.uid for pod in await world.pods("d")}
    await world.cluster.kill("garbage-collector")
    await world.delete(DAEMON_SETS, "d")
    second = await world.create(DAEMON_SETS, daemon_set())
    await world.sleep(20)
    world.cluster.start("garbage-collector")
    await world.sleep(20)
    await world.ready("d", 2)
    pods = await world.pods("d")
    assert not old.intersection(pod.metadata.uid for pod in pods)
    owners = {pod.metadata.owner.uid for pod in pods if pod.metadata.owner}
    assert owners == {second.metadata.uid}
    page = await world.kube.list_page(REVISIONS, namespace=NAMESPACE)
    assert len(page.items) == 1


@in_cluster()
async def test_a_pod_is_available_after_min_ready_seconds(world: ClusterWorld) -> None:
    wanted = daemon_set()
    wanted["spec"]["minReadySeconds"] = 30
    await world.create(DAEMON_SETS, wanted)
    await world.ready("d", 1)
    await world.sleep(20)
    early = (await world.daemon_set("d")).status
    await world.sleep(15)
    late = (await world.daemon_set("d")).status
    assert early.number_ready == late.number_ready == 1
    assert (early.number_available, late.number_available) == (0, 1)


FAILING = SteadyWorld(pull_seconds=0.0, overrides=(WorldOverride(init=ProcessEnd(0.0, 1)),))


@in_cluster(model=FAILING)
async def test_a_failed_pod_is_replaced_with_a_growing_delay(world: ClusterWorld) -> None:
    failing = daemon_set(initContainers=[container("check")], restartPolicy="Never")
    await world.create(DAEMON_SETS, failing)
    await world.sleep(60)
    times = [each.time for each in world.journal(user=DAEMON_SETS_USER, kind="Pod", verb="delete")]
    pauses = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
    assert pauses == [1, 2, 4, 8, 16]
