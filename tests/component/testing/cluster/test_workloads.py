"""Workloads of the simulated cluster: eviction, scheduling, jobs."""

from libs.kube.client import BlockedByBudget, Evicted
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.cluster.cluster import INFORMERS_USER
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.views import BUDGETS, REPLICA_SETS
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import SteadyWorld
from tests.component.testing.cluster.builders import budget, replica_set
from tests.component.testing.cluster.world import NAMESPACE, ClusterWorld, cluster_world, run_world


async def _evict(world: ClusterWorld, node: str) -> list[object]:
    """Try to evict every pod of the node once, as `kubectl drain` does."""
    return [
        await world.kube.evict(pod.metadata.name, namespace=NAMESPACE, uid=pod.metadata.uid)
        for pod in await world.pods("w")
        if pod.spec.node_name == node
    ]


def test_a_drain_moves_pods_elsewhere_as_fast_as_their_budget_allows() -> None:
    async def main(sim: Sim) -> float:
        async with cluster_world(sim, 2, gpus=4, model=SteadyWorld(stop_seconds=3.0)) as world:
            await world.create(REPLICA_SETS, replica_set("w", replicas=4))
            await world.ready("w", 4)
            await world.create(BUDGETS, budget("b", app="w", maxUnavailable=1))
            await world.sleep(1)
            status = (await world.kube.get(BUDGETS, "b", namespace=NAMESPACE)).status
            assert (status.disruptions_allowed, status.current_healthy) == (1, 4)
            assert (status.desired_healthy, status.expected_pods) == (3, 4)

            await world.cordon("n1")
            on_node = [pod for pod in await world.pods("w") if pod.spec.node_name == "n1"]
            assert len(on_node) == 2
            first = await _evict(world, "n1")
            assert [type(result) for result in first] == [Evicted, BlockedByBudget]
            blocked = first[1]
            assert isinstance(blocked, BlockedByBudget)
            assert blocked.retry_after in (None, 10.0)
            fewest = 4

            async def moved() -> bool:
                nonlocal fewest
                pods = await world.pods("w")
                ready = [pod for pod in pods if pod.ready and not pod.deleting]
                fewest = min(fewest, len(ready))
                remaining = [pod for pod in pods if pod.spec.node_name == "n1" and not pod.deleting]
                if remaining:
                    await _evict(world, "n1")
                return len(ready) == 4 and len(pods) == 4 and not remaining

            seconds = await world.until(moved, within=120)
            assert fewest == 3
            await world.sleep(1)
            status = (await world.kube.get(BUDGETS, "b", namespace=NAMESPACE)).status
            assert (status.disrupted_pods, status.disruptions_allowed) == ({}, 1)
            assert {pod.spec.node_name for pod in await world.pods("w")} == {"n2"}
            return seconds

    assert 6.0 < run_world(main) < 12.0


def test_an_unschedulable_pod_is_pending_with_a_reason_until_there_is_room() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, gpus=1) as world:
            await world.create(REPLICA_SETS, replica_set("w", replicas=2))
            await world.sleep(30)
            pods = await world.pods("w")
            (waiting,) = [pod for pod in pods if not pod.spec.node_name]
            condition = waiting.condition("PodScheduled")
            assert condition is not None
            assert (condition.status, condition.reason) == ("False", "Unschedulable")
            assert "1 Insufficient nvidia.com/gpu" in condition.message
            writes = world.journal(name=waiting.metadata.name, user="system:kube-scheduler")
            assert len(writes) == 1

            world.cluster.fleet.add("n2", Hardware(gpus=1))
            await world.ready("w", 2, within=10)
            await world.sleep(1)
            status = (await world.kube.get(REPLICA_SETS, "w", namespace=NAMESPACE)).status
            assert (status.replicas, status.ready_replicas) == (2, 2)
            assert status.observed_generation == 1

    run_world(main)


def test_a_scheduler_with_a_stale_cache_assigns_no_device_twice() -> None:
    async def main(sim: Sim) -> int:
        async with cluster_world(sim, gpus=3) as world:
            faults = world.server.faults
            no_reads = Fault(
                effect=RefuseRequest(500), verbs=("list", "watch"), kind="Pod", user=INFORMERS_USER
            )
            fault = faults.add(no_reads)
            faults.drop_watches(kind="Pod", user=INFORMERS_USER)
            await world.create(REPLICA_SETS, replica_set("w", replicas=5))
            await world.sleep(20)
            early = sum(bool(pod.spec.node_name) for pod in await world.pods("w"))
            faults.remove(fault)
            await world.sleep(120)
            assert sum(pod.ready for pod in await world.pods("w")) == 3
            return early

    assert run_world(main) == 3
