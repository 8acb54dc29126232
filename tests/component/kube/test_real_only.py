"""Behaviour that is not simulated: RBAC, CEL rules, garbage collection and the audit log."""

import ssl
from typing import Any

import pytest

from libs.kube import client
from libs.kube.errors import Forbidden, Invalid, NotFound, Unauthorized
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NODES,
    PODS,
)
from libs.runtime.clock import SystemClock
from libs.testing.realkube.cluster import RealKube
from tests.builders.objects import config_map, daemon_set
from tests.component.kube.raw_requests import JsonObject, patch, send_request
from tests.component.kube.sandbox import ADMIN, NOBODY, Kube, Sandbox
from tests.component.kube.widgets import GROUP, definition
from tests.support import eventually


@pytest.fixture
def ground(plane: RealKube) -> RealKube:
    """Select the real control plane only."""
    return plane


# RBAC


async def test_a_forbidden_request_names_the_missing_permission(sandbox: Sandbox) -> None:
    nobody = sandbox.kube(user=NOBODY)
    with pytest.raises(Forbidden) as refused:
        await nobody.get(CONFIG_MAPS, "a")
    assert refused.value.message == (
        'configmaps "a" is forbidden: User "nobody" cannot get resource "configmaps" in API group '
        f'"" in the namespace "{sandbox.namespace}"; grant it in RBAC'
    )
    with pytest.raises(Forbidden) as refused:
        await nobody.list_page(NODES)
    assert "cannot list resource" in refused.value.message
    assert "at the cluster scope" in refused.value.message


async def test_a_granted_permission_is_effective(sandbox: Sandbox, kube: Kube) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}]
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sandbox.namespace}"
    await send_request(
        kube, "POST", f"{rights}/roles", body={"metadata": {"name": "r"}, "rules": rules}
    )
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": NOBODY, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await send_request(kube, "POST", f"{rights}/rolebindings", body=binding)
    nobody = sandbox.kube(user=NOBODY)

    async def granted() -> bool:
        try:
            await nobody.create(CONFIG_MAPS, config_map("a"))
        except Forbidden:
            return False
        return True

    await eventually(granted)
    created = await nobody.get(CONFIG_MAPS, "a")
    with pytest.raises(Forbidden):
        await nobody.delete(CONFIG_MAPS, "a", uid=created.metadata.uid)


async def test_an_unknown_token_is_unauthorized(plane: RealKube) -> None:
    tls = ssl.create_default_context(cafile=plane.ca_file)
    async with HttpTransport(plane.url, credentials=StaticToken("made-up", tls=tls)) as wire:
        kube = client.Kube(wire, manager="m", clock=SystemClock())
        with pytest.raises(Unauthorized) as refused:
            await kube.list_page(NODES)
    assert refused.value.code == 401


# CEL rules


def ruled(sandbox: Sandbox, *rules: dict[str, Any]) -> JsonObject:
    plural = f"r{sandbox.prefix.rstrip('-')}s"
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "low": {"type": "integer"},
                    "high": {"type": "integer"},
                },
                "x-kubernetes-validations": list(rules),
            }
        },
    }
    wanted = definition(plural=plural, kind=plural.capitalize().rstrip("s"), schema=schema)
    sandbox.delete_at_close(CUSTOM_RESOURCE_DEFINITIONS, wanted["metadata"]["name"])
    return wanted


async def test_an_invalid_cel_rule_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.create(CUSTOM_RESOURCE_DEFINITIONS, ruled(sandbox, {"rule": "self.low <"}))
    assert any("compilation failed" in cause.message for cause in refused.value.causes)
    with pytest.raises(Invalid) as refused:
        await kube.create(CUSTOM_RESOURCE_DEFINITIONS, ruled(sandbox, {"rule": "self.unknown > 1"}))
    assert any("undefined field 'unknown'" in cause.message for cause in refused.value.causes)


async def test_a_broken_rule_is_refused_with_its_message(sandbox: Sandbox, kube: Kube) -> None:
    rule = {
        "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
        "messageExpression": "'%d is above %d'.format([self.low, self.high])",
    }
    wanted = ruled(sandbox, rule)
    await sandbox.install(wanted)
    plural, kind = wanted["spec"]["names"]["plural"], wanted["spec"]["names"]["kind"]
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{sandbox.namespace}/{plural}"
    body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": {"name": "a"}}

    with pytest.raises(Invalid) as refused:
        await kube.request("POST", path, body=body | {"spec": {"low": 3, "high": 2}})
    assert [cause.field for cause in refused.value.causes] == ["spec"]
    assert "3 is above 2" in refused.value.message
    await kube.request("POST", path, body=body | {"spec": {"low": 2, "high": 3}})


# Garbage collection


async def test_dependents_of_a_deleted_owner_are_deleted(sandbox: Sandbox, kube: Kube) -> None:
    owner = await kube.create(CONFIG_MAPS, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner.metadata.uid,
    }
    owned = config_map("owned", ownerReferences=[reference])
    await kube.create(CONFIG_MAPS, owned)
    await kube.delete(CONFIG_MAPS, "owner", uid=owner.metadata.uid)

    async def gone() -> bool:
        try:
            await kube.get(CONFIG_MAPS, "owned")
        except NotFound:
            return True
        return False

    await eventually(gone)


async def test_an_orphaned_daemon_set_leaves_its_pods(sandbox: Sandbox, kube: Kube) -> None:
    key = f"test.example/{sandbox.prefix}driver"
    await sandbox.node("n", labels={key: "x"})
    await kube.create(DAEMON_SETS, daemon_set("d", selector={key: "x"}))

    async def pods() -> list[Any]:
        return list((await kube.list_page(PODS)).items)

    async def one_bound() -> bool:
        found = await pods()
        return len(found) == 1 and bool(found[0].spec.node_name)

    await eventually(one_bound)
    path = DAEMON_SETS.path(namespace=sandbox.namespace, name="d")
    await send_request(kube, "DELETE", path, propagationPolicy="Orphan")

    async def orphaned() -> bool:
        (pod,) = await pods()
        return not pod.metadata.owner_references and not pod.metadata.deletion_timestamp

    await eventually(orphaned)


# Audit log


async def test_the_audit_log_has_each_write_with_its_revision(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a"))
    changed = await patch(kube, CONFIG_MAPS, "a", {"data": {"k": "1"}})
    await kube.delete(CONFIG_MAPS, "a", uid=created.metadata.uid)

    written: list[tuple[str, int, str, str]] = []

    async def logged() -> bool:
        nonlocal written
        written = [
            (revision.verb, revision.revision, revision.user, revision.uid)
            for revision in await sandbox.revisions()
            if (revision.kind, revision.name) == ("ConfigMap", "a")
        ]
        return len(written) == 3

    await eventually(logged)
    uid = created.metadata.uid
    assert written[:2] == [
        ("create", int(created.metadata.resource_version), ADMIN, uid),
        ("patch", int(changed["metadata"]["resourceVersion"]), ADMIN, uid),
    ]
    assert written[2][0] == "delete"
