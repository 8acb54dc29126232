"""What the views make of objects as servers write them."""

import sys
from typing import Any

import msgspec
import pytest
from msgspec.json import encode

from libs.kube.reads import decode_page
from libs.kube.requests import decode
from libs.kube.resources import CONFIG_MAPS
from libs.kube.views import Node, Pod

META = {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7"}


def pod(**status: Any) -> Pod:
    return decode(encode({"metadata": META, "status": status}), Pod, tried="GET pod")


def test_unknown_fields_are_ignored_and_missing_ones_empty() -> None:
    body = encode({"kind": "Node", "metadata": {**META, "new": [1]}, "spec": {"podCIDR": "x"}})
    node = decode(body, Node, tried="GET node")
    assert (node.metadata.key, node.spec.unschedulable, node.status.conditions) == (
        "x/a",
        False,
        (),
    )
    assert node.metadata.managed_fields == ()


def test_an_unset_time_is_empty() -> None:
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": None}
    states = [
        {"running": {"startedAt": None}},
        {"terminated": {"startedAt": None, "finishedAt": None}},
    ]
    containers = [{"name": "c", "state": state} for state in states]
    seen = pod(conditions=[condition], containerStatuses=containers).status
    assert seen.conditions[0].last_transition_time == ""
    running, terminated = (each.state for each in seen.container_statuses)
    assert running.running is not None
    assert terminated.terminated is not None
    assert running.running.started_at == ""
    assert (terminated.terminated.started_at, terminated.terminated.finished_at) == ("", "")
    when = "2027-01-15T08:00:00Z"
    told = pod(conditions=[{**condition, "lastTransitionTime": when}]).status
    assert told.conditions[0].last_transition_time == when


def test_an_empty_list() -> None:
    for items in ([], None):
        body = encode({"metadata": {"resourceVersion": "7"}, "items": items})
        assert not decode_page(body, CONFIG_MAPS, path="pods").items


def test_managed_fields_do_not_keep_the_response_in_memory() -> None:
    fields = {"f:metadata": {"f:labels": {"f:a": {}}}}
    managed = [{"manager": "m", "operation": "Apply", "fieldsV1": fields}, {"manager": "n"}]
    items = [{"metadata": {**META, "managedFields": managed}}, {"metadata": META}]
    body = encode({"metadata": {"resourceVersion": "7"}, "items": items})
    before = sys.getrefcount(body)
    listed = decode_page(body, CONFIG_MAPS, path="pods").items
    first, second = listed[0].metadata.managed_fields
    assert msgspec.json.decode(first.fields_v1) == fields
    assert (first.manager, first.operation, bytes(second.fields_v1)) == ("m", "Apply", b"{}")
    # A raw part of an answer, not copied, would keep all of it in memory.
    assert sys.getrefcount(body) == before


@pytest.mark.parametrize("namespace", ["", "x"])
def test_the_key_is_namespace_and_name(namespace: str) -> None:
    view = msgspec.convert({"metadata": {"name": "a", "namespace": namespace}}, CONFIG_MAPS.view)
    assert view.metadata.key == ("x/a" if namespace else "a")
