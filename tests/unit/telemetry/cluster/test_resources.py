"""The pool of a Node, and the fields of it that are kept."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.policy.pool_index import nodes_without_recorded_pool
from services.telemetry.cluster.fleet import SELECTOR, Node
from tests.builders import objects
from tests.builders.fleet import record, written
from tests.builders.objects import seen

OWNER = "nvidia.com/gpu-operator.driver.owner"


IN_X = record(pool="clusterpolicy-x")


def node(record: NodeRecord | str | None = None, *, owner: str = "") -> Node:
    labels = {"kubernetes.io/os": "linux", **({OWNER: owner} if owner else {})}
    notes = {"x": "y", **written(record)}
    managers = [{"manager": "m"}]
    return seen(Node, objects.node(labels=labels, annotations=notes, managedFields=managers))


@pytest.mark.parametrize(
    ("view", "pool"),
    [
        (node(), ""),
        (node(owner="gold"), "nvidiadriver-gold"),
        (node(IN_X), "clusterpolicy-x"),
        (node(IN_X, owner="gold"), "clusterpolicy-x"),
        (node(record(), owner="gold"), "nvidiadriver-gold"),
        (node("garbled", owner="gold"), "nvidiadriver-gold"),
        (node("garbled"), ""),
    ],
)
def test_the_pool_is_that_of_the_record_or_else_of_the_owner(view: Node, pool: str) -> None:
    assert view.pool == pool


def test_other_fields_are_dropped_and_the_pool_is_kept() -> None:
    view = node(IN_X)
    assert (view.metadata.name, view.metadata.uid) == ("a", "u")
    assert (view.metadata.labels, view.metadata.annotations) == ({}, {})
    assert view.metadata.managed_fields == ()
    copy = replace(view)
    assert copy == view


def test_labels_are_kept_for_selectors_if_record_and_owner_are_missing() -> None:
    bare, owned = node(), node(owner="gold")
    assert bare.metadata.labels == {"kubernetes.io/os": "linux"}
    assert owned.metadata.labels == {}
    (facts,) = nodes_without_recorded_pool([bare, owned])
    assert (facts.name, facts.labels) == ("a", {"kubernetes.io/os": "linux"})


def test_nodes_with_a_telemetry_agent_are_followed() -> None:
    assert SELECTOR == "nvidia.com/gpu.deploy.dcgm-exporter=true"
