"""What `sluice lease` writes on a node at rest and in flight, and what it refuses."""

import re
from typing import Any

import msgspec
import pytest

from libs.contracts.message import decode, encode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    RECORD_ANNOTATION,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.ctl import leases
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.kube.views import Metadata, Node, NodeSpec, Pod

NOW = 1_793_530_800.0
UPGRADE = NodeLease(node_uid="u", owner=LeaseOwner.UPGRADE, token=4, since=NOW)
BOB = NodeLease(
    node_uid="u", owner=LeaseOwner.HUMAN, token=3, since=NOW, who="bob", reason="memory test"
)
ADMITTED = re.compile(r'[^\\]*"owner"[ ]*:[ ]*"human"[^\\]*')
"""What deploy/chart/templates/admission.yaml lets a person write."""


def node(lease: NodeLease | str | None = None, claim: NodeLease | str | None = None) -> Metadata:
    record = NodeRecord(node_uid="u", epoch=1, token=3)
    annotations = {RECORD_ANNOTATION: encode(record).decode()}
    for key, value in ((LEASE_ANNOTATION, lease), (LEASE_CLAIM_ANNOTATION, claim)):
        if value is not None:
            annotations[key] = value if isinstance(value, str) else encode(value).decode()
    return Metadata(name="node-9", uid="u", annotations=annotations)


def take(metadata: Metadata, who: str = "alice", reason: str = "swap a riser") -> Edit:
    return leases.take(metadata, who=who, reason=reason, at=NOW)


def written(edit: Edit) -> dict[str, Any]:
    return edit.patch["metadata"]["annotations"]


def refused(metadata: Metadata) -> str:
    with pytest.raises(Failure) as failure:
        take(metadata)
    assert failure.value.code is ExitCode.REFUSED
    return str(failure.value)


def test_a_node_at_rest_is_taken_with_the_token_of_its_last_operation() -> None:
    text = written(take(node()))[LEASE_ANNOTATION]
    lease = decode(NodeLease, text.encode())
    assert lease == NodeLease(
        node_uid="u", owner=LeaseOwner.HUMAN, token=3, since=NOW, who="alice", reason="swap a riser"
    )


def test_a_node_in_flight_is_claimed_and_its_lease_left_alone() -> None:
    edit = take(node(UPGRADE))
    assert list(written(edit)) == [LEASE_CLAIM_ANNOTATION]
    assert "ends first" in edit.done


@pytest.mark.parametrize("text", ['DOM\\al"ice', 'x", "owner": "upgrade', "tab\tbell\a", "y" * 900])
def test_what_is_written_passes_the_admission_policy(text: str) -> None:
    value = written(take(node(), who=text, reason=text))[LEASE_ANNOTATION]
    assert ADMITTED.fullmatch(value)
    assert len(value.split('"owner"')) == 2
    assert len(value) < 600


def test_a_node_of_somebody_else_is_refused_with_their_name() -> None:
    told = refused(node(BOB))
    assert "bob has the node since 2026-11-01 11:00:00 UTC: memory test" in told
    assert "bob waits since" in refused(node(UPGRADE, BOB))
    assert take(node(BOB), who="bob").patch == {}


def test_a_lease_of_an_earlier_node_of_the_name_is_none() -> None:
    old = NodeLease(node_uid="old", owner=LeaseOwner.HUMAN, token=3, since=NOW, who="bob")
    assert LEASE_ANNOTATION in written(take(node(old)))
    assert leases.held_of(node(old)) is None


def test_an_unreadable_lease_is_taken_by_nobody_and_returned_with_a_warning() -> None:
    assert "cannot be read" in refused(node("{"))
    assert "cannot be read" in refused(node(UPGRADE, "{"))
    edit = leases.give_back(node("{"), who="alice")
    assert written(edit) == {LEASE_ANNOTATION: None}
    assert "nobody knows who has the node" in edit.risk


def test_to_return_a_node_can_upgrade_it_and_a_node_of_others_asks_for_more() -> None:
    own = leases.give_back(node(BOB), who="bob")
    assert written(own) == {LEASE_ANNOTATION: None}
    assert own.risk == "node-9 is drained and upgraded if its pool wants another driver"
    others = leases.give_back(node(BOB), who="alice")
    assert "bob has the node" in others.risk
    assert "may be at work on it" in others.risk


def test_a_claim_is_withdrawn_and_the_lease_of_an_operation_stays() -> None:
    edit = leases.give_back(node(UPGRADE, BOB), who="bob")
    assert (written(edit), edit.risk) == ({LEASE_CLAIM_ANNOTATION: None}, "")
    with pytest.raises(Failure, match="belongs to an operation"):
        leases.give_back(node(UPGRADE), who="bob")
    assert leases.give_back(node(), who="bob").patch == {}


def test_a_claim_holds_once_the_operation_has_ended() -> None:
    waiting, holding = leases.held_of(node(UPGRADE, BOB)), leases.held_of(node(None, BOB))
    assert waiting is not None
    assert holding is not None
    assert (waiting.waits, holding.waits) == (True, False)
    odd = NodeLease(node_uid="u", owner=LeaseOwner.HUMAN, token=3, since=1e300)
    held = leases.held_of(node(odd))
    assert held is not None
    assert leases.describe(held).startswith("a person has the node for a while")


def pod(name: str, *, gpu: bool = False, **more: Any) -> Pod:
    limits = {"nvidia.com/gpu": "4"} if gpu else {}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ml", **more.get("metadata", {})},
            "spec": {"containers": containers},
            "status": {"phase": more.get("phase", "Running")},
        },
        Pod,
    )


OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
OF_DAEMON_SET = {"ownerReferences": [OWNER]}
STAYING = (
    pod("driver", metadata=OF_DAEMON_SET),
    pod("static", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
    pod("over", gpu=True, phase="Succeeded"),
)


DRAIN = "`kubectl drain node-9 --ignore-daemonsets` evicts"
EMPTY = "You may pull it: no pods run on it, except those of DaemonSets"
TWO = "Do not pull it yet: 2 pods run on it, 1 of them with GPUs: ml/train-0, ml/web;"


@pytest.mark.parametrize(
    ("pods", "cordoned", "said"),
    [
        ((), False, f"{EMPTY}; `kubectl cordon node-9` keeps it so"),
        ((), True, EMPTY),
        ((pod("train-0", gpu=True), pod("web")), True, f"{TWO} {DRAIN} them"),
        (
            (pod("train-0", gpu=True),),
            True,
            f"Do not pull it yet: 1 pod with GPUs runs on it: ml/train-0; {DRAIN} it",
        ),
        ((pod("web"),), True, f"Do not pull it yet: 1 pod runs on it: ml/web; {DRAIN} it"),
    ],
    ids=["empty", "empty and cordoned", "two", "one with GPUs", "one"],
)
def test_a_node_may_be_pulled_once_only_pods_that_a_drain_leaves_run_on_it(
    pods: tuple[Pod, ...], cordoned: bool, said: str
) -> None:
    seen = Node(metadata=node(), spec=NodeSpec(unschedulable=cordoned))
    assert leases.may_be_pulled(seen, (*STAYING, *pods)) == said
