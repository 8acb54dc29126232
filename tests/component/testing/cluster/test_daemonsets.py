"""DaemonSets of the simulated cluster: placement and replacement of pods."""

from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.cluster.cluster import INFORMERS_USER
from libs.testing.cluster.daemonset_controller import USER as DAEMON_SETS_USER
from libs.testing.cluster.views import DAEMON_SETS
from libs.testing.simulation import Sim
from tests.builders.objects import daemon_set
from tests.component.testing.cluster.world import ClusterWorld, cluster_world, run_world

OLD = {"driver": "old"}


def test_a_controller_with_a_stale_cache_creates_and_deletes_each_pod_once() -> None:
    """The controller counts its own writes before its cache has them."""

    async def main(sim: Sim) -> tuple[int, int]:
        async with cluster_world(sim, 3, labels=OLD) as world:
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
            return len(world.journal(verb="create", **mine)), len(
                world.journal(verb="delete", **mine)
            )

    assert run_world(main) == (3, 1)


async def _annotate(world: ClusterWorld, number: int) -> None:
    """Change the DaemonSet, so that the controller reconciles it."""
    annotations = {"seen": str(number)}
    await world.change(DAEMON_SETS, "d", {"metadata": {"annotations": annotations}})
    await world.sleep(1)


def test_orphaned_pods_are_adopted_by_the_next_daemon_set_of_the_name() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, 2) as world:
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

    run_world(main)
