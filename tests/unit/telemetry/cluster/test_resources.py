"""Which pool a Node is in, and how little of it is kept."""

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
    ("told", "pool"),
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
def test_the_record_says_the_pool_and_without_one_the_owner(told: Node, pool: str) -> None:
    assert told.pool == pool


def test_nothing_else_is_kept_and_the_pool_stays() -> None:
    reported = node(record=record("clusterpolicy-x"))
    assert (reported.metadata.name, reported.metadata.uid) == ("a", "u")
    assert (reported.metadata.labels, reported.metadata.annotations) == ({}, {})
    assert reported.metadata.managed_fields == ()
    again = msgspec.structs.replace(reported)
    assert again == reported


def test_where_neither_record_nor_owner_says_it_the_labels_stay_for_policies_to_select_by() -> None:
    bare, owned = node(), node(owner="gold")
    assert bare.metadata.labels == {"kubernetes.io/os": "linux"}
    assert owned.metadata.labels == {}
    (facts,) = nodes_without_recorded_pool([bare, owned])
    assert (facts.name, facts.labels) == ("a", {"kubernetes.io/os": "linux"})


def test_nodes_with_a_telemetry_agent_are_followed() -> None:
    assert SELECTOR == "nvidia.com/gpu.deploy.dcgm-exporter=true"
