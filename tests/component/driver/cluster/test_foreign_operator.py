"""A GPU Operator in the same cluster: while it is active, Sluice writes only a condition."""

from typing import Any

from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES, PODS
from libs.testing.apiserver.faults import Fault, RefuseRequest
from services.driver.cluster import resources
from tests.builders.objects import container, daemon_set, owner
from tests.component.driver.cluster.world import (
    AGENTS,
    CLUSTER_POLICIES,
    EXPORTER,
    POLICY,
    World,
    in_world,
)
from tests.component.processes import NAMESPACE, user_of

OPERATOR_NAMESPACE = "default"
THEIRS = "nvidia-operator-validator"
"""A DaemonSet of the GPU Operator; the pods of our validator have the same `app` label."""
LEASE = {
    "metadata": {"name": GPU_OPERATOR_LEASE},
    "spec": {
        "holderIdentity": "gpu-operator_1",
        "leaseDurationSeconds": 15,
        "renewTime": "2027-01-15T08:00:00.000000Z",
        "leaseTransitions": 1,
    },
}
MESSAGE = f"gpu-operator_1 holds lease {OPERATOR_NAMESPACE}/{GPU_OPERATOR_LEASE}"


async def renew(world: World, *, holder: str = "gpu-operator_1") -> None:
    """Renew the lease, as its holder does every few seconds."""
    stamp = f"2027-01-15T09:00:{int(world.sim.clock.monotonic()) % 60:02d}.000000Z"
    spec = {"holderIdentity": holder, "renewTime": stamp}
    path = LEASES.path(namespace=OPERATOR_NAMESPACE, name=GPU_OPERATOR_LEASE)
    await world.kube.request(
        "PATCH", path, body={"spec": spec}, content_type="application/merge-patch+json"
    )


async def keep_lease(world: World, *, seconds: float) -> None:
    """Renew the lease every five seconds for this time."""
    for _ in range(int(seconds / 5)):
        await renew(world)
        await world.sleep(5)


def operator_daemon_set(name: str, *, uid: str) -> dict[str, Any]:
    """Return a DaemonSet as the GPU Operator creates it."""
    owners = [{**owner("ClusterPolicy", POLICY, version="nvidia.com/v1"), "uid": uid}]
    labels = {"app": name, "app.kubernetes.io/part-of": "gpu-operator"}
    selector = {"nvidia.com/gpu.present": "true"}
    made = daemon_set(name, selector=selector, containers=[container("c")])
    made["metadata"] |= {"labels": labels, "ownerReferences": owners}
    made["spec"]["template"]["metadata"]["labels"] = labels
    return made


async def operator_pods(world: World, app: str) -> list[str]:
    """Return the uids of an operand's pods that the GPU Operator created."""
    page = await world.kube.list_page(PODS, namespace=NAMESPACE, labels=f"app={app}")
    return [
        pod.metadata.uid
        for pod in page.items
        if pod.spec.containers[0].name == "c" and not pod.metadata.deletion_timestamp
    ]


async def install_with_gpu_operator(world: World) -> None:
    """Install nodes, a validator and a lease as an active GPU Operator leaves them."""
    await world.install_policy()
    for name in ("a", "b"):
        await world.label(name, {"nvidia.com/gpu.deploy.operator-validator": "true"})
    await world.kube.create(LEASES, LEASE, namespace=OPERATOR_NAMESPACE)
    policy = await world.kube.get(CLUSTER_POLICIES, POLICY)
    await world.kube.create(
        resources.DAEMON_SETS,
        operator_daemon_set(THEIRS, uid=policy.metadata.uid),
        namespace=NAMESPACE,
    )
    await world.sleep(10)


@in_world
async def test_an_active_gpu_operator_stops_all_writes_but_the_condition(world: World) -> None:
    await install_with_gpu_operator(world)
    role = world.start()
    await keep_lease(world, seconds=200)
    assert {kind for _, kind, _ in world.written} == {"ClusterPolicy"}
    assert len(world.revisions()) == 1
    conditions = await world.conditions()
    assert list(conditions) == ["ForeignOperator"]
    assert conditions["ForeignOperator"]["status"] == "True"
    assert MESSAGE in conditions["ForeignOperator"]["message"]
    assert list(await world.daemon_sets()) == [THEIRS]
    assert role.value("gpu_operator_reconciliation_status") == 0


@in_world
async def test_the_status_of_the_gpu_operator_is_kept(world: World) -> None:
    await install_with_gpu_operator(world)
    world.start()
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    status = {"status": {"state": "ready", "conditions": [condition]}}
    await world.patch(CLUSTER_POLICIES, POLICY, status, subresource="status")
    await keep_lease(world, seconds=60)
    conditions = await world.conditions()
    assert list(conditions) == ["Ready", "ForeignOperator"]
    assert conditions["Ready"] == condition
    assert await world.state() == "ready"


@in_world
async def test_after_the_lease_expires_its_operands_are_named_and_left_alone(world: World) -> None:
    await install_with_gpu_operator(world)
    pods = await operator_pods(world, THEIRS)
    before = (await world.daemon_sets())[THEIRS]
    world.start()
    await keep_lease(world, seconds=60)
    await world.sleep(71)
    found = await world.daemon_sets()
    assert sorted(found) == sorted([THEIRS, *AGENTS, *await world.drivers()])
    assert found[THEIRS].metadata.resource_version == before.metadata.resource_version
    assert await operator_pods(world, THEIRS) == pods
    conditions = await world.conditions()
    assert "ForeignOperator" not in conditions
    assert THEIRS in conditions["ForeignOperands"]["message"]
    assert conditions["Ready"]["reason"] == "Error"
    assert "delete" not in {verb for verb, _, _ in world.written}
    await world.remove(resources.DAEMON_SETS, THEIRS)
    await world.sleep(30)
    assert "ForeignOperands" not in await world.conditions()


@in_world
async def test_orphaned_pods_of_the_gpu_operator_are_not_adopted(world: World) -> None:
    await install_with_gpu_operator(world)
    pods = await operator_pods(world, THEIRS)
    path = resources.DAEMON_SETS.path(namespace=NAMESPACE, name=THEIRS)
    await world.kube.request("DELETE", path, body={"propagationPolicy": "Orphan"})
    await renew(world, holder="")
    await world.lead()
    assert await operator_pods(world, THEIRS) == pods
    page = await world.kube.list_page(PODS, namespace=NAMESPACE, labels=f"app={THEIRS}")
    owned = {pod.metadata.uid for pod in page.items if pod.metadata.owner_references}
    assert owned
    assert not owned & set(pods)


@in_world
async def test_a_gpu_operator_that_starts_later_holds_writes_until_it_leaves(world: World) -> None:
    await world.install_policy()
    await world.lead()
    await world.kube.create(LEASES, LEASE, namespace=OPERATOR_NAMESPACE)
    await world.sleep(2)
    await world.remove(resources.DAEMON_SETS, EXPORTER)
    await keep_lease(world, seconds=60)
    assert EXPORTER not in await world.daemon_sets()
    conditions = await world.conditions()
    assert set(conditions) == {"Ready", "Error", "ForeignOperator"}
    # What Sluice said of them is no longer known, and its generation would hold up pipelines.
    assert {conditions[each]["status"] for each in ("Ready", "Error")} == {"Unknown"}
    assert await world.observed_generation() is None
    # A deleted lease counts as held for as long as its holder may take to recreate it.
    path = LEASES.path(namespace=OPERATOR_NAMESPACE, name=GPU_OPERATOR_LEASE)
    await world.kube.request("DELETE", path)
    await world.sleep(15)
    assert EXPORTER not in await world.daemon_sets()
    await world.sleep(10)
    assert EXPORTER in await world.daemon_sets()
    assert "ForeignOperator" not in await world.conditions()
    assert (await world.conditions())["Ready"]["status"] == "False"
    assert await world.observed_generation() is not None


@in_world
async def test_a_gpu_operator_that_renews_its_lease_again_holds_writes_at_once(
    world: World,
) -> None:
    await world.install_policy()
    await world.lead()
    await world.kube.create(LEASES, LEASE, namespace=OPERATOR_NAMESPACE)
    await world.sleep(60)
    assert "ForeignOperator" not in await world.conditions()
    await renew(world)
    await world.sleep(2)
    assert "ForeignOperator" in await world.conditions()


@in_world
async def test_nothing_is_written_while_leases_cannot_be_read(world: World) -> None:
    await world.install_policy()
    await world.lead()
    fault = Fault(
        effect=RefuseRequest(500),
        kind="Lease",
        user=user_of(World.WRITER),
        verbs=("list", "watch"),
    )
    world.server.faults.add(fault)
    world.server.faults.drop_watches(kind="Lease", clean=False)
    await world.sleep(120)
    await world.remove(resources.DAEMON_SETS, EXPORTER)
    await world.sleep(60)
    assert EXPORTER not in await world.daemon_sets()
    world.server.faults.clear()
    await world.sleep(60)
    assert EXPORTER in await world.daemon_sets()


@in_world
async def test_foreign_objects_under_our_names_are_left_alone_and_reported(world: World) -> None:
    await world.install_policy()
    foreign = operator_daemon_set(EXPORTER, uid="x")
    del foreign["metadata"]["ownerReferences"]
    await world.kube.create(resources.DAEMON_SETS, foreign, namespace=NAMESPACE)
    for name, handler in (("nvidia", "nvidia"), ("nvidia-cdi", "mine")):
        runtime_class = {"metadata": {"name": name}, "handler": handler}
        await world.kube.create(resources.RUNTIME_CLASSES, runtime_class)
    await world.lead()
    touched = [name for _, _, name in world.written]
    assert not {EXPORTER, "nvidia", "nvidia-cdi"} & set(touched)
    conditions = await world.conditions()
    assert (
        "DaemonSet sluice-telemetry-agent exists and was not created by Sluice"
        in conditions["Error"]["message"]
    )
    assert 'the handler "mine" instead of "nvidia-cdi"' in conditions["Error"]["message"]
    assert len(await world.events()) == 2
    await world.remove(resources.DAEMON_SETS, EXPORTER)
    await world.remove(resources.RUNTIME_CLASSES, "nvidia-cdi")
    await world.sleep(30)
    conditions = await world.conditions()
    assert conditions["Degraded"]["status"] == "False"
    assert set(AGENTS) < set(await world.daemon_sets())
