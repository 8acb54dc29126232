"""Pods that hold GPUs by a resource claim, in the upgrade of their node."""

from typing import Any

from libs.kube.resources import PODS
from services.scheduler import resources
from tests.component.scheduler.world import NEW, World, in_world

CLAIM = "two-gpus"
OWNER = {"apiVersion": "v1", "kind": "Workload", "name": "w", "uid": "w", "controller": True}


async def claim_devices(world: World, driver: str) -> None:
    """Create a claim with an allocated device of this driver."""
    await world.kube.create(
        resources.RESOURCE_CLAIMS, {"metadata": {"name": CLAIM}, "spec": {}}, namespace="default"
    )
    await allocate(world, driver)


async def allocate(world: World, driver: str) -> None:
    result = {"request": "gpu", "driver": driver, "pool": "a", "device": "gpu-0"}
    path = resources.RESOURCE_CLAIMS.path(namespace="default", name=CLAIM, subresource="status")
    await world.kube.request(
        "PATCH",
        path,
        body={"status": {"allocation": {"devices": {"results": [result]}}}},
        content_type="application/merge-patch+json",
    )


async def start_claiming_pod(world: World, name: str = "train") -> None:
    """Start a pod on node a that names the claim and requests no resources."""
    pod: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [OWNER]},
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "main", "image": "train:1"}],
            "resourceClaims": [{"name": "gpus", "resourceClaimName": CLAIM}],
        },
    }
    await world.kube.create(PODS, pod, namespace="default")
    await world.sleep(5)


def evictions(world: World) -> list[str]:
    return [each.name for each in world.revisions("Pod") if each.verb == "evict"]


@in_world
async def test_a_pod_with_gpus_by_a_claim_is_evicted(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await claim_devices(world, "gpu.nvidia.com")
    await start_claiming_pod(world)
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    assert evictions(world) == ["train"]


@in_world
async def test_a_pod_with_a_claim_of_another_driver_stays(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await claim_devices(world, "net.example")
    await start_claiming_pod(world)
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    assert not evictions(world)


@in_world
async def test_a_node_waits_until_the_claim_of_its_pod_is_known(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await start_claiming_pod(world)
    await world.apply_policy(NEW)
    await world.sleep(60)
    why = await world.why("a")
    assert why.wait is not None
    assert why.wait.code == "preflight"
    assert "resource claim" in why.wait.detail
    assert "default/train" in why.wait.detail
    assert not evictions(world)
    await claim_devices(world, "compute-domain.nvidia.com")
    await world.wait_until_done("a", before=target)
    assert evictions(world) == ["train"]
