"""What is rendered is taken by an API server as it is: every field known, nothing warned of."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sluice.kube.transport import Transport
from sluice.policy.installation.whole import installation
from tests.component.policy.strictly import apply, sent
from tests.unit.policy import goldens
from tests.unit.policy.situations import SETTINGS, SITUATIONS

Object = dict[str, Any]

RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
async def wire(wire: Transport) -> AsyncIterator[Transport]:
    """The daemons do not outlive the test: some would run on the machines of others."""
    yield wire
    path = f"/apis/apps/v1/namespaces/{SETTINGS.namespace}/daemonsets"
    status, _, answer = await sent(wire, "DELETE", path)
    assert status == 200, answer


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
