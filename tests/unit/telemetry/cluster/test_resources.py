"""The pool of a Node, and the fields of it that are kept."""

import msgspec
import pytest

from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.policy.pool_index import nodes_without_recorded_pool
from services.telemetry.cluster.fleet import SELECTOR, Node

OWNER = "nvidia.com/gpu-operator.driver.owner"


def node(*, record: str = "", owner: str = "") -> Node:
    metadata = {
        "name": "a",
        "uid": "u",
        "labels": {"kubernetes.io/os": "linux", **({OWNER: owner} if owner else {})},
        "annotations": {"x": "y", **({RECORD_ANNOTATION: record} if record else {})},
        "managedFields": [{"manager": "m"}],
    }
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata}), type=Node)


def record(pool: str) -> str:
    return encode(NodeRecord(node_uid="u", epoch=1, token=1, pool=pool)).decode()


@pytest.mark.parametrize(
    ("view", "pool"),
    [
        (node(), ""),
        (node(owner="gold"), "nvidiadriver-gold"),
        (node(record=record("clusterpolicy-x")), "clusterpolicy-x"),
        (node(record=record("clusterpolicy-x"), owner="gold"), "clusterpolicy-x"),
        (node(record=record(""), owner="gold"), "nvidiadriver-gold"),
        (node(record="garbled", owner="gold"), "nvidiadriver-gold"),
        (node(record="garbled"), ""),
    ],
)
def test_the_pool_is_that_of_the_record_or_else_of_the_owner(view: Node, pool: str) -> None:
    assert view.pool == pool


def test_other_fields_are_dropped_and_the_pool_is_kept() -> None:
    view = node(record=record("clusterpolicy-x"))
    assert (view.metadata.name, view.metadata.uid) == ("a", "u")
    assert (view.metadata.labels, view.metadata.annotations) == ({}, {})
    assert view.metadata.managed_fields == ()
    copy = msgspec.structs.replace(view)
    assert copy == view


def test_labels_are_kept_for_selectors_if_record_and_owner_are_missing() -> None:
    bare, owned = node(), node(owner="gold")
    assert bare.metadata.labels == {"kubernetes.io/os": "linux"}
    assert owned.metadata.labels == {}
    (facts,) = nodes_without_recorded_pool([bare, owned])
    assert (facts.name, facts.labels) == ("a", {"kubernetes.io/os": "linux"})


def test_nodes_with_a_telemetry_agent_are_followed() -> None:
    assert SELECTOR == "nvidia.com/gpu.deploy.dcgm-exporter=true"
