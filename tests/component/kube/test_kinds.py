"""Every kind that the client uses, and the particulars of leases and events."""

import asyncio
from typing import Any

import pytest

from libs.kube.errors import Conflict, Invalid, NotFound
from libs.kube.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from services.driver.cluster.resources import SERVICES
from services.scheduler.resources import RESOURCE_CLAIMS
from tests.builders.objects import budget, config_map, daemon_set
from tests.component.kube.builders import pod
from tests.component.kube.raw_requests import JsonObject, patch
from tests.component.kube.sandbox import Kube, Sandbox

NEW = "2026-11-01T00:00:00.000000Z"

KINDS: list[tuple[Resource[Any], JsonObject]] = [
    (CONFIG_MAPS, config_map("x")),
    (NODES, {}),
    (NAMESPACES, {}),
    (PODS, pod("x")),
    (SERVICE_ACCOUNTS, {}),
    (EVENTS, {"involvedObject": {"kind": "Node", "name": "n"}}),
    (LEASES, {"spec": {"holderIdentity": "a", "renewTime": NEW}}),
    (DAEMON_SETS, daemon_set("x", selector={"on": "no-node"})),
    (CONTROLLER_REVISIONS, {"revision": 1, "data": {"spec": {}}}),
    (POD_DISRUPTION_BUDGETS, budget("x", "x", minAvailable=1)),
    (RUNTIME_CLASSES, {"handler": "nvidia"}),
    (RESOURCE_CLAIMS, {"spec": {}}),
    (SERVICES, {"spec": {"selector": {"app": "x"}, "ports": [{"name": "a", "port": 9400}]}}),
]


@pytest.mark.parametrize(("resource", "wanted"), KINDS, ids=[kind.plural for kind, _ in KINDS])
async def test_a_kind_supports_all_verbs(
    sandbox: Sandbox, kube: Kube, resource: Resource[Any], wanted: JsonObject
) -> None:
    name = f"{sandbox.prefix}x"
    at = {"namespace": "default"} if resource is EVENTS else {}  # events about a node are there
    if not resource.namespaced and resource is not NAMESPACES:
        sandbox.delete_at_close(resource, name)

    made = await kube.create(resource, wanted | {"metadata": {"name": name}}, **at)

    assert (await kube.get(resource, name, **at)).metadata.uid == made.metadata.uid
    listed = await kube.list_page(resource, **at, fields=f"metadata.name={name}")
    assert [item.metadata.uid for item in listed.items] == [made.metadata.uid]
    change = {"metadata": {"labels": {"new": "1"}}}
    changed = await patch(sandbox.kube(**at), resource, name, change)
    assert changed["metadata"]["labels"]["new"] == "1"
    assert (changed["kind"], changed["apiVersion"]) == (resource.kind, resource.api_version)
    if resource is NAMESPACES:  # their deletion is not simulated
        return
    await kube.delete(resource, name, uid=made.metadata.uid, **at)
    with pytest.raises(NotFound):
        await kube.get(resource, name, **at)


# Leases


def lease(holder: str, **metadata: Any) -> JsonObject:
    return {
        "metadata": {"name": "l", **metadata},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": NEW,
            "renewTime": NEW,
            "leaseTransitions": 0,
        },
    }


async def test_one_of_several_candidates_takes_a_lease(sandbox: Sandbox, kube: Kube) -> None:
    made = await kube.create(LEASES, lease(""))
    fence = {"resourceVersion": made.metadata.resource_version}

    results = await asyncio.gather(
        *(kube.replace(LEASES, lease(name, **fence)) for name in ("a", "b", "c")),
        return_exceptions=True,
    )

    assert sum(isinstance(result, Conflict) for result in results) == 2
    (won,) = [result for result in results if not isinstance(result, BaseException)]
    now = await kube.get(LEASES, "l")
    assert now.spec.holder_identity == won.spec.holder_identity


async def test_a_lease_time_requires_microseconds(sandbox: Sandbox, kube: Kube) -> None:
    wanted = lease("a")
    wanted["spec"]["renewTime"] = "2026-11-01T00:00:00Z"
    with pytest.raises(Invalid) as refused:
        await kube.create(LEASES, wanted)
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


# Events


def event(name: str, involved: JsonObject, **more: Any) -> JsonObject:
    return {
        "metadata": {"name": name},
        "involvedObject": involved,
        "reason": "Upgraded",
        "message": "done",
        "type": "Normal",
        "source": {"component": "nvidia-gpu-operator"},
        "firstTimestamp": "2026-11-01T00:00:00Z",
        "lastTimestamp": "2026-11-01T00:00:00Z",
        "count": 1,
        **more,
    }


async def test_the_count_of_an_event_can_be_increased(sandbox: Sandbox, kube: Kube) -> None:
    pod_there = {"kind": "Pod", "name": "a", "namespace": sandbox.namespace, "apiVersion": "v1"}
    await kube.create(EVENTS, event("e", pod_there))

    again = {"count": 2, "lastTimestamp": "2026-11-01T00:10:00Z"}
    now = await patch(kube, EVENTS, "e", again)

    assert (now["count"], now["firstTimestamp"], now["lastTimestamp"]) == (
        2,
        "2026-11-01T00:00:00Z",
        "2026-11-01T00:10:00Z",
    )
    assert now["source"] == {"component": "nvidia-gpu-operator"}


async def test_an_event_must_be_in_the_namespace_of_its_object(
    sandbox: Sandbox, kube: Kube
) -> None:
    elsewhere = {"kind": "Pod", "name": "a", "namespace": "elsewhere"}
    with pytest.raises(Invalid) as refused:
        await kube.create(EVENTS, event("e", elsewhere))
    assert [cause.field for cause in refused.value.causes] == ["involvedObject.namespace"]


async def test_events_are_selected_by_their_object(sandbox: Sandbox, kube: Kube) -> None:
    for name, about, kind in (("e1", "a", "Pod"), ("e2", "b", "Pod"), ("e3", "a", "Job")):
        involved = {"kind": kind, "name": about, "namespace": sandbox.namespace}
        await kube.create(EVENTS, event(name, involved))

    page = await kube.list_page(
        EVENTS, fields="involvedObject.kind=Pod,involvedObject.name=a,reason=Upgraded"
    )

    assert [item.metadata.name for item in page.items] == ["e1"]
