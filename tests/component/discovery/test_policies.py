"""Effects on labels of policies, workload configurations and an active GPU Operator."""

import msgspec

from libs.contracts.node import PLUGIN_CONFIG_LABEL
from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES
from services.discovery.cluster import resources
from services.discovery.cluster.gfd import GPU_LABELS
from tests.component.discovery.world import World, in_world
from tests.component.processes import NAMESPACE
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


async def share(world: World, **replicas: int) -> None:
    """Write the configurations of the device plugin, which share each GPU that often."""
    sharing = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: %d}]}}"
    metadata = {"name": "plugin-configs", "namespace": NAMESPACE}
    texts = {name: f"version: v1\n{sharing % count}\n" for name, count in replicas.items()}
    await world.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}
    )


def written(world: World) -> list[str]:
    """Return the Nodes that were written, in order."""
    return [name for _, kind, name in world.written if kind == "Node"]


async def shown(world: World, name: str) -> tuple[str, ...]:
    labels = await world.labels(name)
    ends = ("product", "replicas", "sharing-strategy")
    return tuple(labels[f"nvidia.com/gpu.{end}"] for end in ends)


@in_world
async def test_labels_say_how_the_device_plugin_of_a_node_shares_gpus(world: World) -> None:
    model = "NVIDIA-H100-80GB-HBM3"
    await share(world, four=4, two=2)
    config = {"name": "plugin-configs", "default": "four"}
    await world.apply(cluster_policy(devicePlugin={"config": config}))
    await world.node("a", WITH_GPUS)
    await world.node("b", WITH_GPUS, **{PLUGIN_CONFIG_LABEL: "two"})
    await world.lead()
    assert await shown(world, "a") == (f"{model}-SHARED", "4", "time-slicing")
    assert await shown(world, "b") == (f"{model}-SHARED", "2", "time-slicing")
    assert written(world) == ["a", "b"]
    await share(world, four=8, two=2)
    await world.sleep(2)
    assert await shown(world, "a") == (f"{model}-SHARED", "8", "time-slicing")
    change = {"metadata": {"labels": {PLUGIN_CONFIG_LABEL: "four"}}}
    await world.patch(resources.NODES, "b", change)
    await world.sleep(2)
    assert await shown(world, "b") == (f"{model}-SHARED", "8", "time-slicing")
    await world.kube.request(
        "DELETE", resources.CONFIGS.path(namespace=NAMESPACE, name="plugin-configs")
    )
    await world.sleep(60)
    assert await shown(world, "a") == (f"{model}-SHARED", "8", "time-slicing")
    await world.apply(cluster_policy(devicePlugin={"config": {"name": ""}}))
    await world.sleep(2)
    assert await shown(world, "a") == await shown(world, "b") == (model, "1", "none")
    assert written(world) == ["a", "b", "a", "b", "a", "b"]


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
