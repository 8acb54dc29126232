"""Effects on labels of policies, workload configurations and an active GPU Operator."""

import msgspec

from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES
from services.discovery.cluster import resources
from services.discovery.cluster.gfd import GPU_LABELS
from tests.component.discovery.world import World, in_world
from tests.unit.discovery.cluster.builders import (
    ALL_OPERANDS,
    DEPLOY,
    GPU,
    PRESENT,
    SYSTEM,
    operands_in,
)
from tests.unit.policy.situations import cluster_policy

WITH_GPUS = msgspec.structs.replace(SYSTEM, gpus=(GPU,))
POLICY = resources.POLICIES["ClusterPolicy"]


@in_world
async def test_operands_wait_for_a_policy_and_stay_when_it_is_deleted(world: World) -> None:
    await world.remove(POLICY, "cluster-policy")
    await world.node("a", SYSTEM)
    await world.lead()
    labels = await world.labels("a")
    assert (labels[PRESENT], operands_in(labels)) == ("true", {})
    await world.apply(cluster_policy())
    await world.sleep(2)
    assert await world.operands("a") == ALL_OPERANDS
    await world.kube.request("DELETE", POLICY.path(name="cluster-policy"))
    await world.sleep(600)
    assert await world.operands("a") == ALL_OPERANDS
    assert len(world.revisions()) == 2


@in_world
async def test_a_node_may_serve_virtual_machines_if_the_policy_enables_it(world: World) -> None:
    await world.node("a", **{"nvidia.com/gpu.workload.config": "vm-passthrough"})
    await world.node("b")
    for name in ("a", "b"):
        await world.report_facts(name, SYSTEM)
    await world.lead()
    assert await world.operands("a") == ALL_OPERANDS
    await world.apply(cluster_policy(sandboxWorkloads={"enabled": True}))
    await world.sleep(2)
    assert "vfio-manager" in await world.operands("a")
    assert "device-plugin" not in await world.operands("a")
    assert await world.operands("b") == ALL_OPERANDS
    assert world.written == [
        ("apply", "Node", "a"),
        ("apply", "Node", "b"),
        ("apply", "Node", "a"),
    ]


@in_world
async def test_gpu_labels_can_be_disabled(world: World) -> None:
    await world.node("a")
    await world.report_facts("a", WITH_GPUS)
    await world.lead()
    assert set(GPU_LABELS) & (await world.labels("a")).keys()
    await world.apply(cluster_policy(gfd={"enabled": False}))
    await world.sleep(2)
    labels = await world.labels("a")
    assert not set(GPU_LABELS) & labels.keys()
    assert operands_in(labels) == {**ALL_OPERANDS, "mig-manager": "true"}


async def renew(world: World, *, times: int) -> None:
    """Renew the Lease of a GPU Operator every five seconds."""
    path = LEASES.path(namespace="default", name=GPU_OPERATOR_LEASE)
    for number in range(times):
        renew_time = f"2027-01-15T09:00:{number % 60:02d}.000000Z"
        spec = {
            "holderIdentity": "gpu-operator_1",
            "leaseDurationSeconds": 15,
            "renewTime": renew_time,
        }
        await world.kube.request(
            "PATCH", path, body={"spec": spec}, content_type="application/merge-patch+json"
        )
        await world.sleep(5)


@in_world
async def test_no_node_is_labelled_while_a_gpu_operator_is_active(world: World) -> None:
    lease = {"metadata": {"name": GPU_OPERATOR_LEASE}, "spec": {}}
    await world.kube.create(LEASES, lease, namespace="default")
    await world.node("a")
    await world.lead()
    await renew(world, times=1)
    await world.report_facts("a", SYSTEM)
    await renew(world, times=60)
    assert world.revisions() == []
    await world.sleep(20)
    assert await world.operands("a") == ALL_OPERANDS
    assert len(world.revisions()) == 1
    # It returns under the same name: its renewals count although the holder is unchanged.
    await renew(world, times=2)
    await world.label("a", {f"{DEPLOY}dcgm": None})
    await renew(world, times=6)
    assert len(world.revisions()) == 1
    await world.sleep(20)
    assert await world.operands("a") == ALL_OPERANDS


@in_world
async def test_a_gpu_cluster_of_a_gpu_operator_leaves_operands_undecided(world: World) -> None:
    await world.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gpuclusters.nvidia.com"},
            "spec": {
                "group": "nvidia.com",
                "scope": "Cluster",
                "names": {
                    "kind": "GPUCluster",
                    "listKind": "GPUClusterList",
                    "plural": "gpuclusters",
                    "singular": "gpucluster",
                },
                "versions": [
                    {
                        "name": "v1alpha1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                    }
                ],
            },
        }
    )
    await world.sleep(1)
    await world.apply(
        {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "GPUCluster",
            "metadata": {"name": "theirs"},
        }
    )
    await world.node("a", SYSTEM)
    await world.lead()
    labels = await world.labels("a")
    assert (labels[PRESENT], operands_in(labels)) == ("true", {})
    await world.kube.request("DELETE", resources.GPU_CLUSTERS.path(name="theirs"))
    await world.sleep(2)
    assert await world.operands("a") == ALL_OPERANDS
