"""What is rendered is taken by an API server as it is: every field known, nothing warned of."""

from typing import Any

import msgspec
import pytest

from sluice.kube.transport import Request, Transport
from sluice.policy.installation.whole import installation
from tests.unit.policy import goldens
from tests.unit.policy.situations import SETTINGS, SITUATIONS

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
RBAC = "rbac.authorization.k8s.io/v1"


def path_of(obj: Object) -> str:
    """Where an object is applied."""
    api, metadata = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    kind = obj["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{root}{within}/{plural}/{metadata['name']}"


async def sent(
    wire: Transport, method: str, path: str, body: Object, **query: str
) -> tuple[int, list[str], Object]:
    """Status, warnings and answer to a strict write."""
    content = APPLY if method == "PATCH" else "application/json"
    request = Request(
        method=method,
        path=path,
        query={"fieldManager": "sluice-driver", "fieldValidation": "Strict", **query},
        headers={"accept": "application/json", "content-type": content},
        body=msgspec.json.encode(body),
    )
    async with wire.open(request) as answer:
        headers = answer.headers.items()
        warnings = [value for name, value in headers if name.lower() == "warning"]
        return answer.status, warnings, msgspec.json.decode(await answer.body())


async def apply(wire: Transport, obj: Object) -> Object:
    """Ours is what holds, as when a service does it."""
    status, warnings, answer = await sent(wire, "PATCH", path_of(obj), obj, force="true")
    assert (status in (200, 201), warnings) == (True, []), answer
    return answer


async def installed(wire: Transport, *, rights: bool) -> None:
    """As whoever installs Sluice does it; a simulated server knows no rights."""
    for obj in installation(SETTINGS.namespace):
        if rights or obj["apiVersion"] != RBAC:
            await apply(wire, obj)


@pytest.mark.parametrize("name", SITUATIONS)
async def test_every_object_is_taken_and_unchanged_the_second_time(
    wire: Transport, name: str, ground: object
) -> None:
    await installed(wire, rights=ground is not None)
    for obj in goldens.objects(name):
        first = await apply(wire, obj)
        again = await apply(wire, obj)
        # A controller may write a status between the two.
        same = "generation" if "generation" in first["metadata"] else "resourceVersion"
        assert again["metadata"][same] == first["metadata"][same]


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_the_namespace_lets_every_pod_in(wire: Transport, name: str) -> None:
    await installed(wire, rights=True)
    templates = [
        obj["spec"]["template"] for obj in goldens.objects(name) if obj["kind"] == "DaemonSet"
    ]
    path = f"/api/v1/namespaces/{SETTINGS.namespace}/pods"
    for template in templates:
        metadata = {**template["metadata"], "generateName": "a-"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        status, warnings, answer = await sent(wire, "POST", path, pod, dryRun="All")
        assert (status, warnings) == (201, []), answer


@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_services_may_do_their_work_and_no_more(wire: Transport) -> None:
    await installed(wire, rights=True)

    async def may(account: str, verb: str, resource: str, *, group: str = "", at: str = "") -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{SETTINGS.namespace}:{account}",
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "namespace": at,
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        status, _, answer = await sent(wire, "POST", path, review)
        assert status == 201
        return bool(answer["status"]["allowed"])

    here = SETTINGS.namespace
    assert await may("sluice-scheduler", "delete", "pods", at=here)
    assert not await may("sluice-scheduler", "delete", "pods", at="default")
    assert await may("sluice-driver-cluster", "patch", "daemonsets", group="apps", at=here)
    assert not await may("sluice-driver-cluster", "patch", "daemonsets", group="apps", at="default")
    assert not await may("sluice-driver", "get", "nodes")
    assert not await may("nvidia-driver", "get", "nodes")
