"""Nodes of the simulated cluster: cordons, taints, silence and deletion."""

from libs.kube.errors import NotFound
from libs.testing.cluster.kubelet.hardware import LEASES_IN
from libs.testing.cluster.views import DAEMON_SETS, LEASES, NODES, REPLICA_SETS, Node
from tests.builders.objects import daemon_set, replica_set
from tests.component.testing.cluster.world import ClusterWorld, in_cluster


def _taints(node: Node) -> list[str]:
    return [f"{taint.key.partition('/')[2]}:{taint.effect}" for taint in node.spec.taints]


async def _status(world: ClusterWorld, name: str) -> str:
    condition = (await world.node(name)).condition("Ready")
    return condition.status if condition is not None else ""


@in_cluster(2)
async def test_a_silent_node_is_unknown_after_its_grace_period_until_it_reports(
    world: ClusterWorld,
) -> None:
    await world.create(DAEMON_SETS, daemon_set())
    await world.ready("d", 2)
    pod = next(pod for pod in await world.pods("d") if pod.spec.node_name == "n1")
    world.machine("n1").disconnect()

    async def unknown() -> bool:
        return await _status(world, "n1") == "Unknown"

    took = await world.until(unknown, every=0.5)
    await world.sleep(1)
    node = await world.node("n1")
    assert _taints(node) == ["unreachable:NoSchedule", "unreachable:NoExecute"]
    ready = node.condition("Ready")
    assert ready is not None
    assert ready.reason == "NodeStatusUnknown"
    unready = next(each for each in await world.pods("d") if not each.ready)
    assert unready.metadata.uid == pod.metadata.uid
    assert await _status(world, "n2") == "True"

    world.machine("n1").reconnect()
    await world.ready("d", 2)
    await world.sleep(1)
    assert await _status(world, "n1") == "True"
    assert _taints(await world.node("n1")) == []
    same = next(each for each in await world.pods("d") if each.spec.node_name == "n1")
    assert same.metadata.uid == pod.metadata.uid
    assert same.status.container_statuses[0].restart_count == 0
    assert 40.0 <= took <= 55.0


@in_cluster(2)
async def test_workloads_leave_an_unreachable_node_after_five_minutes_and_daemons_stay(
    world: ClusterWorld,
) -> None:
    await world.create(DAEMON_SETS, daemon_set())
    await world.create(REPLICA_SETS, replica_set("w", replicas=1, gpus=1))
    await world.ready("w", 1)
    await world.ready("d", 2)
    old = await world.pod("w")
    silent = old.spec.node_name
    world.machine(silent).power_off()

    async def tainted() -> bool:
        return "unreachable:NoExecute" in _taints(await world.node(silent))

    await world.until(tainted)

    async def is_replaced() -> bool:
        return any(pod.ready for pod in await world.pods("w"))

    took = await world.until(is_replaced, within=400, every=0.5)
    pods = await world.pods("w")
    assert len(pods) == 2
    (new,) = [pod for pod in pods if pod.ready]
    assert new.spec.node_name not in ("", silent)
    # No kubelet can confirm the end of its containers.
    (stuck,) = [pod for pod in pods if not pod.ready]
    assert stuck.deleting
    assert stuck.metadata.uid == old.metadata.uid
    assert not any(pod.deleting for pod in await world.pods("d"))
    assert 300.0 <= took <= 305.0


@in_cluster()
async def test_a_kubelet_recreates_its_deleted_node_only_at_its_restart(
    world: ClusterWorld,
) -> None:
    first = await world.node("n1")
    await world.kube.request("DELETE", NODES.path(name="n1"))
    await world.sleep(600)
    try:
        await world.node("n1")
    except NotFound:
        pass
    else:
        raise AssertionError("the kubelet recreated the Node without a restart")
    world.machine("n1").register()
    await world.sleep(1)
    second = await world.node("n1")
    assert second.metadata.uid != first.metadata.uid
    assert world.machine("n1").node_uid == second.metadata.uid
    lease = await world.kube.get(LEASES, "n1", namespace=LEASES_IN)
    (owner,) = lease.metadata.owner_references
    assert owner.uid == second.metadata.uid
    await world.sleep(300)
    assert await _status(world, "n1") == "True"


@in_cluster()
async def test_pods_and_lease_of_a_deleted_node_are_collected(world: ClusterWorld) -> None:
    await world.create(DAEMON_SETS, daemon_set())
    await world.ready("d", 1)
    world.machine("n1").power_off()
    await world.kube.request("DELETE", NODES.path(name="n1"))

    async def gone() -> bool:
        return not await world.pods()

    took = await world.until(gone, within=120, every=0.5)
    assert (await world.kube.list_page(LEASES, namespace=LEASES_IN)).items == ()
    deleted = world.journal(kind="Pod", verb="delete")
    assert deleted[-1].user.endswith("pod-garbage-collector")
    assert 40.0 <= took <= 80.0
