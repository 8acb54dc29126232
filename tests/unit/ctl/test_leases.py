"""What `sluice lease` writes on a node at rest and in flight, and what it refuses."""

import re
from typing import Any

import pytest

from libs.contracts.message import decode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.ctl import leases
from libs.ctl.bound_pods import may_be_pulled
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.observe.objects import Pod
from libs.fleet.records import held_of
from libs.kube.views import Metadata, Node, NodeSpec
from libs.policy.render.rendered import IMAGE_LABEL
from tests.builders import objects
from tests.builders.fleet import written
from tests.builders.objects import owner, seen

NOW = 1_793_530_800.0
UPGRADE = NodeLease(node_uid="u", owner=LeaseOwner.UPGRADE, token=4, since=NOW)
BOB = NodeLease(
    node_uid="u", owner=LeaseOwner.HUMAN, token=3, since=NOW, who="bob", reason="memory test"
)
ADMITTED = re.compile(r'[^\\]*"owner"[ ]*:[ ]*"human"[^\\]*')
"""What deploy/chart/templates/admission.yaml lets a person write."""


def node(lease: NodeLease | str | None = None, claim: NodeLease | str | None = None) -> Metadata:
    record = NodeRecord(node_uid="u", epoch=1, token=3, pool="blue")
    return Metadata(name="node-9", uid="u", annotations=written(record, lease, claim))


def take(
    metadata: Metadata, who: str = "alice", reason: str = "swap a riser", frozen: str = ""
) -> Edit:
    return leases.take(metadata, who=who, reason=reason, at=NOW, frozen={frozen})


def patched(edit: Edit) -> dict[str, Any]:
    return edit.patch["metadata"]["annotations"]


def refused(metadata: Metadata) -> str:
    with pytest.raises(Failure) as failure:
        take(metadata)
    assert failure.value.code is ExitCode.REFUSED
    return str(failure.value)


def test_a_node_at_rest_is_taken_with_the_token_of_its_last_operation() -> None:
    text = patched(take(node()))[LEASE_ANNOTATION]
    lease = decode(NodeLease, text.encode())
    assert lease == NodeLease(
        node_uid="u", owner=LeaseOwner.HUMAN, token=3, since=NOW, who="alice", reason="swap a riser"
    )


def test_a_node_in_flight_is_claimed_and_its_lease_left_alone() -> None:
    edit = take(node(UPGRADE))
    assert list(patched(edit)) == [LEASE_CLAIM_ANNOTATION]
    assert edit.done.endswith("and `sluice why node-9` shows when")


def test_a_frozen_pool_ends_no_operation_and_who_takes_a_node_of_it_is_told() -> None:
    told = "blue is frozen: the operation ends only after `sluice upgrade resume blue`"
    assert take(node(UPGRADE), frozen="blue").done.endswith(f"from then on, but {told}")
    assert take(node(UPGRADE, BOB), who="bob", frozen="blue").done.endswith(f"; {told}")
    for at_rest in (node(), node(BOB)):
        assert "frozen" not in take(at_rest, who="bob", frozen="blue").done


@pytest.mark.parametrize("text", ['DOM\\al"ice', 'x", "owner": "upgrade', "tab\tbell\a", "y" * 900])
def test_what_is_written_passes_the_admission_policy(text: str) -> None:
    value = patched(take(node(), who=text, reason=text))[LEASE_ANNOTATION]
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
    assert LEASE_ANNOTATION in patched(take(node(old)))
    assert held_of(node(old)) is None


def test_an_unreadable_lease_is_taken_by_nobody_and_returned_with_a_warning() -> None:
    assert "cannot be read" in refused(node("{"))
    assert "cannot be read" in refused(node(UPGRADE, "{"))
    edit = leases.give_back(node("{"), who="alice")
    assert patched(edit) == {LEASE_ANNOTATION: None}
    assert "nobody knows who has the node" in edit.risk


def test_to_return_a_node_can_upgrade_it_and_a_node_of_others_asks_for_more() -> None:
    own = leases.give_back(node(BOB), who="bob")
    assert patched(own) == {LEASE_ANNOTATION: None}
    assert own.risk == "node-9 is drained and upgraded if its pool wants another driver"
    others = leases.give_back(node(BOB), who="alice")
    assert "bob has the node" in others.risk
    assert "may be at work on it" in others.risk


def test_a_claim_is_withdrawn_and_the_lease_of_an_operation_stays() -> None:
    edit = leases.give_back(node(UPGRADE, BOB), who="bob")
    assert (patched(edit), edit.risk) == ({LEASE_CLAIM_ANNOTATION: None}, "")
    assert edit.done == "your claim on node-9 is withdrawn; its upgrade goes on"
    others = leases.give_back(node(UPGRADE, BOB), who="alice")
    assert others.done.startswith("the claim of bob on node-9 is withdrawn")
    with pytest.raises(Failure, match="belongs to an operation"):
        leases.give_back(node(UPGRADE), who="bob")
    assert leases.give_back(node(), who="bob").patch == {}


def test_a_claim_holds_once_the_operation_has_ended() -> None:
    waiting, holding = held_of(node(UPGRADE, BOB)), held_of(node(None, BOB))
    assert waiting is not None
    assert holding is not None
    assert (waiting.waits, holding.waits) == (True, False)
    odd = NodeLease(node_uid="u", owner=LeaseOwner.HUMAN, token=3, since=1e300)
    held = held_of(node(odd))
    assert held is not None
    assert leases.describe(held).startswith("a person has the node for a while")


def pod(
    name: str, *, gpu: bool = False, phase: str = "Running", volumes: Any = (), **meta: Any
) -> Pod:
    """Return a pod of a Job; further fields are of its metadata."""
    meta = {"namespace": "ml", "ownerReferences": [owner("Job")], **meta}
    status = {"phase": phase}
    made = objects.pod(name, gpus=4 * gpu, status=status, meta=meta, volumes=volumes)
    return seen(Pod, made)


ALONE: dict[str, Any] = {"ownerReferences": []}
STAYING = (
    pod("driver", ownerReferences=[owner("DaemonSet")]),
    pod("static", annotations={"kubernetes.io/config.mirror": "x"}, **ALONE),
    pod("over", gpu=True, phase="Succeeded"),
)


IMAGE_POD = pod("sluice-image-0985", labels={IMAGE_LABEL: "x"}, **ALONE)
EMPTY_DIR = ({"name": "cache", "emptyDir": {}},)
DRAIN = "`kubectl drain node-9 --ignore-daemonsets` evicts"
EMPTY = "You may pull it: no pods run on it, except those of DaemonSets"
ONE = "Do not pull it yet: 1 pod runs on it: ml/web;"
TWO = "Do not pull it yet: 2 pods run on it, 1 of them with GPUs: ml/train-0, ml/web;"


def drain(flag: str) -> str:
    return DRAIN.replace("daemonsets", f"daemonsets {flag}")


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
        ((pod("web"),), True, f"{ONE} {DRAIN} it"),
        ((IMAGE_POD,), True, EMPTY),
        ((IMAGE_POD, pod("web")), True, f"{ONE} {drain('--force')} it"),
        (
            (pod("web", **ALONE),),
            True,
            f"{ONE} {drain('--force')} it; it has no controller and does not come back",
        ),
        (
            (pod("train-0", gpu=True), pod("web", **ALONE)),
            True,
            f"{TWO} {drain('--force')} them; ml/web: it has no controller and does not come back",
        ),
        ((pod("web", volumes=EMPTY_DIR),), True, f"{ONE} {drain('--delete-emptydir-data')} it"),
    ],
    ids=[
        "empty",
        "empty and cordoned",
        "two",
        "one with GPUs",
        "one",
        "an image comes",
        "an image comes beside one",
        "one without a controller",
        "one of two without a controller",
        "one with an emptyDir",
    ],
)
def test_a_node_may_be_pulled_once_only_pods_that_a_drain_leaves_run_on_it(
    pods: tuple[Pod, ...], cordoned: bool, said: str
) -> None:
    seen = Node(metadata=node(), spec=NodeSpec(unschedulable=cordoned))
    assert may_be_pulled(seen, (*STAYING, *pods)) == said
