"""Views of objects as servers write them, conditions, and resources of custom kinds."""

import sys
from typing import Any

import msgspec
import pytest
from msgspec.json import encode

from libs.kube.reads import decode_page
from libs.kube.requests import decode
from libs.kube.resources import CONFIG_MAPS, CustomObject, custom_resource, custom_resources
from libs.kube.views import Condition, Node, Pod, set_condition
from libs.policy.kinds import GPU_CLUSTER, NODE_SELECTING_KINDS

META = {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7"}


def pod(**status: Any) -> Pod:
    return decode(encode({"metadata": META, "status": status}), Pod, tried="GET pod")


def test_unknown_fields_are_ignored_and_missing_ones_empty() -> None:
    body = encode({"kind": "Node", "metadata": {**META, "new": [1]}, "spec": {"podCIDR": "x"}})
    node = decode(body, Node, tried="GET node")
    assert node.metadata.key == "x/a"
    assert not node.spec.unschedulable
    assert node.status.conditions == node.metadata.managed_fields == ()


@pytest.mark.parametrize("time", [None, "2027-01-15T08:00:00Z"])
def test_an_unset_time_is_empty(time: str | None) -> None:
    states = [
        {"running": {"startedAt": time}},
        {"terminated": {"startedAt": time, "finishedAt": time}},
    ]
    status = pod(
        conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": time}],
        containerStatuses=[{"name": "c", "state": state} for state in states],
    ).status
    running, terminated = (container.state for container in status.container_statuses)
    assert running.running is not None
    assert terminated.terminated is not None
    times = {status.conditions[0].last_transition_time, running.running.started_at}
    times |= {terminated.terminated.started_at, terminated.terminated.finished_at}
    assert times == {time or ""}


@pytest.mark.parametrize("items", [[], None])
def test_an_empty_list_has_no_items(items: list[Any] | None) -> None:
    body = encode({"metadata": {"resourceVersion": "7"}, "items": items})
    assert not decode_page(body, CONFIG_MAPS, path="pods").items


def test_managed_fields_do_not_keep_the_response_in_memory() -> None:
    fields = {"f:metadata": {"f:labels": {"f:a": {}}}}
    managed = [{"manager": "m", "operation": "Apply", "fieldsV1": fields}, {"manager": "n"}]
    items = [{"metadata": {**META, "managedFields": managed}}, {"metadata": META}]
    body = encode({"metadata": {"resourceVersion": "7"}, "items": items})
    references = sys.getrefcount(body)
    listed = decode_page(body, CONFIG_MAPS, path="pods").items
    first, second = listed[0].metadata.managed_fields
    assert msgspec.json.decode(first.fields_v1) == fields
    assert (first.manager, first.operation, bytes(second.fields_v1)) == ("m", "Apply", b"{}")
    assert sys.getrefcount(body) == references


@pytest.mark.parametrize(("namespace", "key"), [("", "a"), ("x", "x/a")])
def test_the_key_is_namespace_and_name(namespace: str, key: str) -> None:
    view = msgspec.convert({"metadata": {"name": "a", "namespace": namespace}}, CONFIG_MAPS.view)
    assert view.metadata.key == key


# Conditions.

NOON = 1_800_014_400.0
READY = Condition(
    type="Ready",
    status="True",
    reason="AllWell",
    message="3 of 3",
    last_transition_time="2027-01-15T12:00:00Z",
    observed_generation=4,
)
OTHER = Condition(type="Other", status="Unknown")


def set_ready(*conditions: Condition, now: float = NOON + 60, **changes: Any) -> Any:
    fields: dict[str, Any] = {"type": "Ready", "status": "True", "reason": "AllWell"}
    fields |= {"message": "3 of 3", "generation": 4, **changes}
    return set_condition(conditions, now=now, **fields)


def test_a_new_condition_is_appended_with_the_current_time() -> None:
    assert set_ready(OTHER, now=NOON + 0.9) == (OTHER, READY)


def test_an_unchanged_condition_returns_the_identical_tuple() -> None:
    conditions = (READY, OTHER)
    unchanged = set_condition(
        conditions,
        type="Ready",
        status="True",
        reason="AllWell",
        message="3 of 3",
        generation=4,
        now=NOON + 60,
    )
    assert unchanged is conditions


@pytest.mark.parametrize(
    ("before", "changes", "minute"),
    [
        (READY, {"reason": "Fine"}, 0),
        (READY, {"message": "4 of 4"}, 0),
        (READY, {"generation": 5}, 0),
        (READY, {"status": "False"}, 1),
        (Condition(type="Ready", status="True"), {}, 1),  # without a time
    ],
)
def test_the_transition_time_moves_only_with_the_status(
    before: Condition, changes: dict[str, Any], minute: int
) -> None:
    other, after = set_ready(OTHER, before, **changes)
    assert other is OTHER
    assert after != before
    assert after.status == changes.get("status", "True")
    assert after.last_transition_time == f"2027-01-15T12:0{minute}:00Z"


# Custom kinds.


def test_a_custom_resource_has_the_path_of_its_kind() -> None:
    resource = custom_resource(GPU_CLUSTER, CustomObject)
    assert resource.path(name="a") == "/apis/nvidia.com/v1alpha1/gpuclusters/a"
    assert (resource.kind, resource.is_custom, resource.view) == ("GPUCluster", True, CustomObject)
    by_name = custom_resources(NODE_SELECTING_KINDS, CustomObject)
    assert list(by_name) == ["ClusterPolicy", "NVIDIADriver", "GPUClusterPolicy"]


def test_a_custom_object_has_its_spec_and_no_managed_fields() -> None:
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    body = encode({"metadata": {"name": "a", "managedFields": [entry]}, "spec": {"x": [1]}})
    view = decode(body, CustomObject, tried="GET a")
    assert (view.metadata.name, view.spec, view.metadata.managed_fields) == ("a", {"x": [1]}, ())
