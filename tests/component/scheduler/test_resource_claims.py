"""Pods that hold GPUs by a resource claim, in the upgrade of their node."""

from libs.kube.resources import PODS
from services.scheduler import resources
from tests.builders.objects import owner, pod
from tests.component.scheduler.world import NEW, World, in_world

CLAIM = "two-gpus"


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
    claims = [{"name": "gpus", "resourceClaimName": CLAIM}]
    owners = [owner("Workload", version="v1")]
    body = pod(name, node="a", meta={"ownerReferences": owners}, resourceClaims=claims)
    await world.kube.create(PODS, body, namespace="default")
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
    wait = await world.wait_of("a")
    assert wait.code == "preflight"
    assert "resource claim" in wait.detail
    assert "default/train" in wait.detail
    assert not evictions(world)
    await claim_devices(world, "compute-domain.nvidia.com")
    await world.wait_until_done("a", before=target)
    assert evictions(world) == ["train"]
