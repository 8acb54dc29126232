"""A GPU Operator in the same cluster: while it is at work, we stand back, and say so."""

from typing import Any

from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES, PODS
from libs.testing.apiserver.faults import Fault, RefuseRequest
from services.driver.cluster import resources
from tests.component.driver.cluster.world import (
    AGENTS,
    CLUSTER_POLICIES,
    EXPORTER,
    POLICY,
    VALIDATOR,
    World,
    in_world,
)
from tests.component.processes import NAMESPACE, user_of

ITS_NAMESPACE = "default"
LEASE = {
    "metadata": {"name": GPU_OPERATOR_LEASE},
    "spec": {
        "holderIdentity": "gpu-operator_1",
        "leaseDurationSeconds": 15,
        "renewTime": "2027-01-15T08:00:00.000000Z",
        "leaseTransitions": 1,
    },
}
WORDS = f"gpu-operator_1 holds lease {ITS_NAMESPACE}/{GPU_OPERATOR_LEASE}"


async def renew(world: World, *, holder: str = "gpu-operator_1") -> None:
    """As who holds it does every few seconds."""
    stamp = f"2027-01-15T09:00:{int(world.sim.clock.monotonic()) % 60:02d}.000000Z"
    spec = {"holderIdentity": holder, "renewTime": stamp}
    path = LEASES.path(namespace=ITS_NAMESPACE, name=GPU_OPERATOR_LEASE)
    await world.kube.request(
        "PATCH", path, body={"spec": spec}, content_type="application/merge-patch+json"
    )


async def at_work(world: World, *, seconds: float) -> None:
    """It holds its lease for so long."""
    for _ in range(int(seconds / 5)):
        await renew(world)
        await world.sleep(5)


def its_daemon_set(name: str, *, uid: str) -> dict[str, Any]:
    """As the GPU Operator makes it."""
    owner = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "name": POLICY,
        "uid": uid,
        "controller": True,
    }
    labels = {"app": name, "app.kubernetes.io/part-of": "gpu-operator"}
    container = {"name": "c", "image": "r.example/its:1"}
    spec = {"nodeSelector": {"nvidia.com/gpu.present": "true"}, "containers": [container]}
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def its_pods(world: World, app: str) -> list[str]:
    """Uids of the pods of an operand that the GPU Operator made."""
    page = await world.kube.list_page(PODS, namespace=NAMESPACE, labels=f"app={app}")
    return [
        pod.metadata.uid
        for pod in page.items
        if pod.spec.containers[0].name == "c" and not pod.metadata.deletion_timestamp
    ]


async def taken_over(world: World) -> None:
    """It has labelled the nodes and made a validator, and holds its lease."""
    await world.install_policy()
    for name in ("a", "b"):
        await world.label(name, {"nvidia.com/gpu.deploy.operator-validator": "true"})
    await world.kube.create(LEASES, LEASE, namespace=ITS_NAMESPACE)
    policy = await world.kube.get(CLUSTER_POLICIES, POLICY)
    await world.kube.create(
        resources.DAEMON_SETS,
        its_daemon_set(VALIDATOR, uid=policy.metadata.uid),
        namespace=NAMESPACE,
    )
    await world.sleep(10)


@in_world
async def test_while_it_is_at_work_nothing_is_touched_and_the_status_says_so(world: World) -> None:
    await taken_over(world)
    role = world.start()
    await at_work(world, seconds=200)
    assert {kind for _, kind, _ in world.written} == {"ClusterPolicy"}
    assert len(world.revisions()) == 1
    said = await world.conditions()
    assert list(said) == ["ForeignOperator"]
    assert said["ForeignOperator"]["status"] == "True"
    assert WORDS in said["ForeignOperator"]["message"]
    assert list(await world.daemon_sets()) == [VALIDATOR]
    assert role.value("gpu_operator_reconciliation_status") == 0


@in_world
async def test_the_status_of_a_policy_stays_as_written(world: World) -> None:
    await taken_over(world)
    world.start()
    its = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    status = {"status": {"state": "ready", "conditions": [its]}}
    await world.patch(CLUSTER_POLICIES, POLICY, status, subresource="status")
    await at_work(world, seconds=60)
    said = await world.conditions()
    assert list(said) == ["Ready", "ForeignOperator"]
    assert said["Ready"] == its
    assert await world.state() == "ready"


@in_world
async def test_when_its_lease_runs_out_what_it_made_is_replaced_pod_by_pod(world: World) -> None:
    await taken_over(world)
    world.start()
    await at_work(world, seconds=60)
    assert len(await its_pods(world, VALIDATOR)) == 2
    await world.sleep(11)
    assert len(await world.daemon_sets()) == 1
    await world.sleep(60)
    found = await world.daemon_sets()
    assert sorted(found) == sorted([*AGENTS, *await world.drivers()])
    assert found[VALIDATOR].status.updated_number_scheduled == 2
    assert await its_pods(world, VALIDATOR) == []
    assert all(each.metadata.owner_references == () for each in found.values())
    said = await world.conditions()
    assert "ForeignOperator" not in said
    assert said["Ready"]["reason"] == "Error"
    deleted = [name for verb, _, name in world.written if verb == "delete"]
    assert deleted == [VALIDATOR]


@in_world
async def test_its_pods_outlive_its_daemon_set_and_are_adopted(world: World) -> None:
    await taken_over(world)
    before = await its_pods(world, VALIDATOR)
    assert len(before) == 2
    await world.change_policy(daemonsets={"updateStrategy": "OnDelete"})
    await renew(world, holder="")
    await world.lead()
    assert await its_pods(world, VALIDATOR) == before
    ours = (await world.daemon_sets())[VALIDATOR]
    page = await world.kube.list_page(
        PODS, namespace=NAMESPACE, labels="app=nvidia-operator-validator"
    )
    owners = {owner.uid for pod in page.items for owner in pod.metadata.owner_references}
    assert owners == {ours.metadata.uid}


@in_world
async def test_killed_after_the_old_one_went_the_next_one_makes_ours(world: World) -> None:
    await taken_over(world)
    await renew(world, holder="")
    for after in range(20):
        role = world.start(cut_after=after)
        await world.sleep(30)
        await role.kill()
    found = await world.daemon_sets()
    assert sorted(found) == sorted([*AGENTS, *await world.drivers()])
    names = [name for _, kind, name in world.written if kind == "DaemonSet"]
    assert names.count(VALIDATOR) == 2
    assert len(names) == len(found) + 1


@in_world
async def test_a_gpu_operator_that_starts_later_holds_writes_until_it_leaves(world: World) -> None:
    await world.install_policy()
    await world.lead()
    await world.kube.create(LEASES, LEASE, namespace=ITS_NAMESPACE)
    await world.sleep(2)
    await world.remove(resources.DAEMON_SETS, EXPORTER)
    await at_work(world, seconds=60)
    assert EXPORTER not in await world.daemon_sets()
    said = await world.conditions()
    assert set(said) == {"Ready", "Error", "ForeignOperator"}
    # Deleted by a person, a lease counts for as long as its holder may take to make it anew.
    path = LEASES.path(namespace=ITS_NAMESPACE, name=GPU_OPERATOR_LEASE)
    await world.kube.request("DELETE", path)
    await world.sleep(15)
    assert EXPORTER not in await world.daemon_sets()
    await world.sleep(10)
    assert EXPORTER in await world.daemon_sets()
    assert "ForeignOperator" not in await world.conditions()


@in_world
async def test_a_gpu_operator_that_renews_its_lease_again_holds_writes_at_once(
    world: World,
) -> None:
    await world.install_policy()
    await world.lead()
    await world.kube.create(LEASES, LEASE, namespace=ITS_NAMESPACE)
    await world.sleep(60)
    assert "ForeignOperator" not in await world.conditions()
    await renew(world)
    await world.sleep(2)
    assert "ForeignOperator" in await world.conditions()


@in_world
async def test_while_its_lease_cannot_be_seen_nothing_is_touched(world: World) -> None:
    await world.install_policy()
    await world.lead()
    blind = Fault(
        effect=RefuseRequest(500),
        kind="Lease",
        user=user_of(World.WRITER),
        verbs=("list", "watch"),
    )
    world.server.faults.add(blind)
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
    theirs = its_daemon_set(EXPORTER, uid="x")
    del theirs["metadata"]["ownerReferences"]
    await world.kube.create(resources.DAEMON_SETS, theirs, namespace=NAMESPACE)
    for name, handler in (("nvidia", "nvidia"), ("nvidia-cdi", "mine")):
        reported = {"metadata": {"name": name}, "handler": handler}
        await world.kube.create(resources.RUNTIME_CLASSES, reported)
    await world.lead()
    touched = [name for _, _, name in world.written]
    assert not {EXPORTER, "nvidia", "nvidia-cdi"} & set(touched)
    said = await world.conditions()
    assert (
        "DaemonSet nvidia-dcgm-exporter exists and was not created by Sluice"
        in said["Error"]["message"]
    )
    assert 'the handler "mine" instead of "nvidia-cdi"' in said["Error"]["message"]
    assert len(await world.events()) == 2
    await world.remove(resources.DAEMON_SETS, EXPORTER)
    await world.remove(resources.RUNTIME_CLASSES, "nvidia-cdi")
    await world.sleep(30)
    said = await world.conditions()
    assert said["Degraded"]["status"] == "False"
    assert set(AGENTS) < set(await world.daemon_sets())
