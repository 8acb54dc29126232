"""Resource claims and the pods that name them, as the scheduler reads them."""

from typing import Any

from libs.kube.client import MERGE_PATCH
from services.scheduler.resources import PODS, RESOURCE_CLAIMS
from services.scheduler.snapshot.claims import claims_gpu
from tests.component.kube.builders import pod
from tests.component.kube.sandbox import Kube, Sandbox

REQUEST: dict[str, Any] = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example"}}


async def allocate(kube: Kube, namespace: str, driver: str) -> None:
    result = {"request": "gpu", "driver": driver, "pool": "n", "device": "gpu-0"}
    path = RESOURCE_CLAIMS.path(namespace=namespace, name="c", subresource="status")
    allocation = {"devices": {"results": [result]}}
    body = {"status": {"allocation": allocation}}
    await kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)


async def test_a_claim_is_unknown_until_its_devices_are_allocated(
    sandbox: Sandbox, kube: Kube
) -> None:
    namespace = sandbox.namespace
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [REQUEST]}}}
    created = await kube.create(RESOURCE_CLAIMS, claim)
    assert created.has_gpu is None
    await allocate(kube, namespace, "gpu.nvidia.com")
    allocated = await kube.get(RESOURCE_CLAIMS, "c")
    assert allocated.has_gpu is True


async def test_a_pod_names_its_claims(sandbox: Sandbox, kube: Kube) -> None:
    namespace = sandbox.namespace
    body = pod("x")
    body["spec"]["resourceClaims"] = [
        {"name": "a", "resourceClaimName": "c"},
        {"name": "b", "resourceClaimTemplateName": "t"},
    ]
    await kube.create(PODS, body)
    found = await kube.get(PODS, "x")
    asked: list[str] = []
    assert claims_gpu(found, asked.append) is None
    assert asked == [f"{namespace}/c"]
