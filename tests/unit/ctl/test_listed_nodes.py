"""Nodes of a list, and nodes that are followed: what a row is read from is kept of them."""

import msgspec
import pytest

from libs.contracts import node
from libs.contracts.node import (
    RECORD_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.ctl.follow.objects import FollowedObject
from libs.ctl.listed_nodes import ListedNode, known_metadata
from libs.fleet.node import VERSION_LABEL, fleet_node
from libs.kube import views
from tests.builders.fleet import written

RECORD = NodeRecord(node_uid="u", epoch=1, token=2, pool="gpus", since=5.0, attempt=3, cause="x")
HELD = NodeLease(node_uid="u", owner=LeaseOwner.HUMAN, token=2, since=4.0, who="ann")
LABELS = {STATE_LABEL: "drain-required", SKIP_LABEL: "true", VERSION_LABEL: "580.95.05"}


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({}, {}),
        (LABELS, written(RECORD)),
        ({STATE_LABEL: "x"}, written(None, HELD)),
        ({}, {RECORD_ANNOTATION: "{", **written(claim=HELD)}),
    ],
)
def test_a_listed_node_has_the_row_of_the_whole_node(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    metadata = {
        "name": "node-1",
        "uid": "u",
        "creationTimestamp": "2026-05-01T00:00:00Z",
        "labels": {"kubernetes.io/os": "linux", **labels},
        "annotations": {"other": "1", **annotations},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:metadata": {}}}],
    }
    data = msgspec.json.encode({"metadata": metadata})
    whole = msgspec.json.decode(data, type=views.Object)
    listed = known_metadata(msgspec.json.decode(data, type=ListedNode))
    assert fleet_node(listed) == fleet_node(whole.metadata)
    assert (listed.labels, listed.annotations) == (labels, annotations)


def test_a_row_is_read_from_no_key_that_lists_and_followers_drop() -> None:
    known = {name: key for name, key in vars(node).items() if isinstance(key, str)}
    labels = {key: "true" for name, key in known.items() if name.endswith("_LABEL")}
    annotations = {key: "{" for name, key in known.items() if name.endswith("_ANNOTATION")}
    metadata = {
        "name": "node-1",
        "uid": "u",
        "labels": {VERSION_LABEL: "580.95.05", **labels},
        "annotations": annotations,
    }
    data = msgspec.json.encode({"metadata": metadata})
    row = fleet_node(msgspec.json.decode(data, type=views.Object).metadata)
    assert row.in_flight
    assert row.skipped
    assert row.was_cordoned
    assert fleet_node(known_metadata(msgspec.json.decode(data, type=ListedNode))) == row
    assert fleet_node(msgspec.json.decode(data, type=FollowedObject).metadata) == row
