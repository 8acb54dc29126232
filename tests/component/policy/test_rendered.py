"""An API server accepts rendered objects as they are, without unknown fields or warnings."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from libs.kube.client import APPLY_PATCH
from libs.kube.requests import Transport
from libs.policy.installation import installation_objects
from tests.component.definitions import install_monitors
from tests.component.policy.strict_writes import apply, object_path, send
from tests.unit.policy import goldens
from tests.unit.policy.situations import SETTINGS, SITUATIONS
from tests.unit.policy.test_effects import changed_policies, render
from tests.unit.policy.test_selectors import SELECTORS

Object = dict[str, Any]

RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
async def wire(wire: Transport) -> AsyncIterator[Transport]:
    """Delete the DaemonSets after the test: their pods would run on nodes of other tests."""
    yield wire
    path = f"/apis/apps/v1/namespaces/{SETTINGS.namespace}/daemonsets"
    status, _, answer = await send(wire, "DELETE", path)
    assert status == 200, answer


async def installed(wire: Transport, *, rights: bool) -> None:
    """Apply the installation's objects; a simulated server does not enforce RBAC."""
    for obj in installation_objects(SETTINGS.namespace):
        if rights or obj["apiVersion"] != RBAC:
            await apply(wire, obj)
    await install_monitors(wire)


@pytest.mark.parametrize("name", SITUATIONS)
async def test_every_object_is_accepted_and_reapplied_without_change(
    wire: Transport, name: str, ground: object
) -> None:
    await installed(wire, rights=ground is not None)
    for obj in goldens.golden_objects(name):
        first = await apply(wire, obj)
        second = await apply(wire, obj)
        # A controller may write a status between the two.
        version_field = "generation" if "generation" in first["metadata"] else "resourceVersion"
        assert second["metadata"][version_field] == first["metadata"][version_field]


@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_objects_with_any_field_set_are_accepted(wire: Transport) -> None:
    await installed(wire, rights=False)
    applied: set[bytes] = set()
    changed = list(changed_policies())
    for field, objects in changed:
        for created in render(objects).objects:
            text = msgspec.json.encode(created.object)
            if text in applied:
                continue
            applied.add(text)
            where = object_path(created.object)
            status, warnings, answer = await send(
                wire,
                "PATCH",
                where,
                created.object,
                content=APPLY_PATCH,
                force="true",
                dryRun="All",
            )
            assert (status in (200, 201), warnings) == (True, []), (field, answer)
    assert len(applied) > len(changed)


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_the_namespace_admits_every_pod(wire: Transport, name: str) -> None:
    await installed(wire, rights=True)
    templates = [
        obj["spec"]["template"]
        for obj in goldens.golden_objects(name)
        if obj["kind"] == "DaemonSet"
    ]
    path = f"/api/v1/namespaces/{SETTINGS.namespace}/pods"
    for template in templates:
        metadata = {**template["metadata"], "generateName": "a-"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        status, warnings, answer = await send(wire, "POST", path, pod, dryRun="All")
        assert (status, warnings) == (201, []), answer


@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_services_have_exactly_their_permissions(wire: Transport) -> None:
    await installed(wire, rights=True)

    async def may(
        account: str, verb: str, resource: str, *, group: str = "", at: str = "", name: str = ""
    ) -> bool:
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
                    "name": name,
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        status, _, answer = await send(wire, "POST", path, review)
        assert status == 201
        return bool(answer["status"]["allowed"])

    here = SETTINGS.namespace
    assert await may("sluice-scheduler", "delete", "pods", at=here)
    assert not await may("sluice-scheduler", "delete", "pods", at="default")
    assert await may("sluice-driver-cluster", "patch", "daemonsets", group="apps", at=here)
    assert not await may("sluice-driver-cluster", "patch", "daemonsets", group="apps", at="default")
    leases = {"group": "coordination.k8s.io", "at": "elsewhere"}
    for account in ("sluice-scheduler", "sluice-driver-cluster", "sluice-discovery-cluster"):
        for verb in ("get", "list", "watch"):
            assert await may(account, verb, "leases", name="53822513.nvidia.com", **leases)
            assert not await may(account, verb, "leases", name="somebody", **leases)
            assert not await may(account, verb, "leases", **leases)
    leases = {"group": "coordination.k8s.io", "at": here}
    for account in ("sluice-scheduler", "sluice-driver-cluster", "sluice-discovery-cluster"):
        assert await may(account, "patch", "leases", name=account, **leases)
        assert not await may(account, "patch", "leases", name="sluice-other", **leases)
        assert not await may(account, "patch", "leases", **leases)
    driver, script = "sluice-driver-cluster", "sluice-driver-startup-probe"
    assert await may(driver, "patch", "configmaps", at=here, name=script)
    assert not await may(driver, "patch", "configmaps", at=here, name="kube-root-ca.crt")
    assert not await may(driver, "delete", "configmaps", at=here, name=script)
    assert await may("sluice-scheduler", "watch", "configmaps", at=here)
    assert not await may("sluice-scheduler", "patch", "configmaps", at=here)
    assert not await may("sluice-scheduler", "get", "configmaps", at="default")
    for group, resource in (("", "services"), ("monitoring.coreos.com", "servicemonitors")):
        kind = {"group": group, "at": here}
        assert await may(driver, "list", resource, **kind)
        assert await may(driver, "delete", resource, name="nvidia-dcgm-exporter", **kind)
        assert not await may(driver, "delete", resource, name="kubernetes", **kind)
        assert not await may(driver, "list", resource, group=group)
    classes = {"group": "node.k8s.io"}
    assert await may(driver, "delete", "runtimeclasses", name="nvidia-cdi", **classes)
    assert not await may(driver, "delete", "runtimeclasses", name="kata", **classes)
    assert not await may("sluice-driver", "get", "nodes")
    assert not await may("sluice-driver-container", "get", "nodes")


async def test_selectors_are_accepted_as_by_the_api_server(wire: Transport, ground: object) -> None:
    for selector, fits in SELECTORS:
        status, _, answer = await send(wire, "GET", "/api/v1/pods", labelSelector=selector)
        expected = (200,) if fits else (400,)
        # The simulated server looks less closely at the part of a key before the slash.
        if ground is None and "/" in selector:
            expected = (200, 400)
        assert status in expected, (selector, answer)
