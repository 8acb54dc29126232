"""The replayed journal: writes, the Nodes they belong to, and the objects at the start."""

from typing import Any

import msgspec
import pytest

from libs.audit.timeline import Timeline
from libs.contracts.journal import Verb
from libs.contracts.message import encode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    MANAGER,
    RECORD_ANNOTATION,
    LeaseOwner,
    Operation,
)
from tests.unit.audit.builders import JournalBuilder, cordoned, messages, state, violations_of


def timeline(builder: JournalBuilder, *, since: int = 0) -> Timeline:
    return Timeline(builder.revisions[since:], ())


@pytest.mark.parametrize(("code", "problems"), [(200, 1), (299, 1), (300, 0), (409, 0)])
def test_refused_writes_change_nothing(code: int, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.apply("n1", cordoned(None))
    builder.revisions[-1] = msgspec.structs.replace(builder.revisions[-1], code=code)
    assert len(messages(builder.journal(), "I4")) == problems


def test_a_refused_patch_is_no_write_of_ours() -> None:
    builder = JournalBuilder("n1")
    builder.apply("n1", state("upgrade-required"), verb=Verb.PATCH, code=409)
    assert violations_of(builder.journal()) == []


def test_positions_before_the_first_revision() -> None:
    builder = JournalBuilder("n1", "n2")
    begun = len(builder.revisions)
    builder.delete("Node", "n2")
    builder.mark_required("n1")
    known = timeline(builder, since=begun)
    assert [known.position_of(number) for number in (102, 104)] == [-1, 1]


def test_a_record_is_lost_by_writes_of_others_but_not_with_its_node() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.mark_required("n1")
    builder.mark_required("n2")
    builder.annotate("n1", RECORD_ANNOTATION, None)
    builder.delete("Node", "n2")
    assert [change.record_lost for change in timeline(builder).changes[-2:]] == [True, False]


def test_a_pod_is_deleted_by_the_first_deletion() -> None:
    builder = JournalBuilder()
    builder.pod("p1")
    first = builder.delete("Pod", "p1")
    builder.advance(100)
    builder.revisions.append(msgspec.structs.replace(first, time=builder.time))
    gone = timeline(builder).pods["uid-p1"].deletion
    assert gone is not None
    assert gone.time == builder.time - 100


def test_a_write_without_a_uid_is_matched_by_name() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.cordon("n1", False)
    builder.cordon("n1")
    for place in (-1, -2):
        builder.revisions[place] = msgspec.structs.replace(builder.revisions[place], uid="")
    builder.release_unchanged("n1")
    assert messages(builder.journal(), "I4") == [
        "n1 was uncordoned, although kubectl had cordoned it"
    ]


def conflict(
    builder: JournalBuilder, name: str, *, uid: str, times: int, kind: str = "Node"
) -> None:
    for _ in range(times):
        builder.write(kind, name, lambda _: None, manager=MANAGER, code=409)
        builder.revisions[-1] = msgspec.structs.replace(builder.revisions[-1], uid=uid)


@pytest.mark.parametrize(
    ("uid", "kind", "problems"),
    [("uid-again", "Node", 1), ("", "Node", 1), ("uid-n1", "Node", 0), ("", "Pod", 0)],
)
def test_a_conflict_is_matched_by_uid_or_by_name(uid: str, kind: str, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.delete("Node", "n1")
    builder.node("n1", uid="uid-again")
    builder.take_lease("n1")
    conflict(builder, "n1", uid="uid-again", times=3)
    conflict(builder, "n1", uid=uid, times=3, kind=kind)
    assert len(messages(builder.journal(), "I10")) == problems


def test_a_recreated_node_was_deleted_once() -> None:
    builder = JournalBuilder("n0", "n5", "n7")
    builder.cordon("n5")
    builder.take_lease("n7")
    seen = {"nodes": str(builder.revision)}
    builder.delete("Node", "n7")
    builder.node("n7", uid="uid-again")
    over = builder.take_lease("n0", seen=seen)
    assert ("I1", "n0", over.revision) in violations_of(builder.journal())


@pytest.mark.parametrize(
    ("verb", "code", "whole"),
    [
        (Verb.CREATE, 201, True),
        (Verb.CREATE, 200, True),
        (Verb.PATCH, 201, True),
        (Verb.PATCH, 200, False),
    ],
)
def test_a_node_created_in_the_journal_is_complete(verb: Verb, code: int, whole: bool) -> None:
    builder = JournalBuilder("n1")
    builder.revisions[0] = msgspec.structs.replace(builder.revisions[0], verb=verb, code=code)
    assert timeline(builder).nodes["uid-n1"].is_complete is whole


def test_an_operation_needs_an_upgrade_lease() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    facts = timeline(builder).nodes["uid-n1"].latest
    assert (facts.upgrade, facts.operation) == (facts.lease, Operation.UPGRADE)
    lease = encode(builder.lease("n1", 7, LeaseOwner.HUMAN)).decode()
    builder.annotate("n1", LEASE_ANNOTATION, lease)
    facts = timeline(builder).nodes["uid-n1"].latest
    assert (facts.upgrade, facts.operation, facts.leased_away) == (None, None, True)
    builder.annotate("n1", LEASE_ANNOTATION, None)
    facts = timeline(builder).nodes["uid-n1"].latest
    assert (facts.upgrade, facts.operation, facts.leased_away) == (None, None, False)


def test_a_malformed_lease_makes_a_node_unavailable() -> None:
    builder = JournalBuilder("n1")
    builder.annotate("n1", LEASE_ANNOTATION, "garbled")
    facts = timeline(builder).nodes["uid-n1"].latest
    assert (facts.lease, facts.leased_away, facts.unavailable) == (None, True, True)


def begun(builder: JournalBuilder, *fields: dict[str, Any]) -> Timeline:
    """Return a Node in which we own these fields."""
    whole = builder.objects["Node", "n1"]
    owned = [{"manager": MANAGER, "fieldsV1": one} for one in fields]
    start = {"kind": "Node", **whole, "metadata": {**whole["metadata"], "managedFields": owned}}
    return Timeline((), (start,))


def test_a_node_without_a_ready_condition_is_ready() -> None:
    builder = JournalBuilder("n1")
    del builder.objects["Node", "n1"]["status"]
    assert begun(builder).nodes["uid-n1"].at(-1).ready


def test_annotations_are_not_labels() -> None:
    builder = JournalBuilder()
    builder.node("n1", labels={"rack": "a"})
    builder.annotate("n1", "rack", "b")
    builder.annotate("n1", "row", "c")
    labels = begun(builder).nodes["uid-n1"].labels
    assert (labels["rack"], "row" in labels) == ("a", False)


def test_managed_fields_show_our_fields_and_the_owner_of_the_cordon() -> None:
    builder = JournalBuilder("n1")
    ours = {"f:metadata": {"f:labels": {"f:a/b": {}}}}
    life = begun(builder).nodes["uid-n1"]
    assert (life.was_ours, life.cordoned_by_others) == (False, None)
    life = begun(builder, ours).nodes["uid-n1"]
    assert (life.was_ours, life.cordoned_by_others) == (True, False)
    builder.cordon("n1")
    assert begun(builder, ours).nodes["uid-n1"].cordoned_by_others is True
    cordon = {"f:spec": {"f:unschedulable": {}}}
    assert begun(builder, cordon).nodes["uid-n1"].cordoned_by_others is False
