"""The journal replayed: what is a write, to which Node, and what was there when it began."""

from typing import Any

import msgspec
import pytest

from libs.audit.replay.timeline import Timeline
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


def timeline(story: JournalBuilder, *, since: int = 0) -> Timeline:
    return Timeline(story.revisions[since:], ())


# What is a write.


@pytest.mark.parametrize(("code", "problems"), [(200, 1), (299, 1), (300, 0), (409, 0)])
def test_what_the_server_did_not_grant_changed_nothing(code: int, problems: int) -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.apply("n1", cordoned(None))
    story.revisions[-1] = msgspec.structs.replace(story.revisions[-1], code=code)
    assert len(messages(story.journal(), "I4")) == problems


def test_a_patch_that_was_refused_is_not_one_that_we_made() -> None:
    story = JournalBuilder("n1")
    story.apply("n1", state("upgrade-required"), verb=Verb.PATCH, code=409)
    assert violations_of(story.journal()) == []


def test_before_the_first_revision_is_before_everything() -> None:
    story = JournalBuilder("n1", "n2")
    begun = len(story.revisions)
    story.delete("Node", "n2")
    story.mark_required("n1")
    known = timeline(story, since=begun)
    assert [known.position_of(number) for number in (102, 104)] == [-1, 1]


def test_a_record_is_lost_when_others_take_it_and_not_with_its_node() -> None:
    story = JournalBuilder("n1", "n2")
    story.mark_required("n1")
    story.mark_required("n2")
    story.annotate("n1", RECORD_ANNOTATION, None)
    story.delete("Node", "n2")
    assert [change.record_lost for change in timeline(story).changes[-2:]] == [True, False]


def test_a_pod_is_gone_when_that_is_first_said() -> None:
    story = JournalBuilder()
    story.pod("p1")
    first = story.delete("Pod", "p1")
    story.advance(100)
    story.revisions.append(msgspec.structs.replace(first, time=story.time))
    gone = timeline(story).pods["uid-p1"].deletion
    assert gone is not None
    assert gone.time == story.time - 100


# To which Node.


def test_a_write_that_names_no_uid_is_to_the_node_of_that_name() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.cordon("n1", False)
    story.cordon("n1")
    for place in (-1, -2):
        story.revisions[place] = msgspec.structs.replace(story.revisions[place], uid="")
    story.release_unchanged("n1")
    assert messages(story.journal(), "I4") == [
        "n1 was uncordoned, although kubectl had cordoned it"
    ]


def conflict(story: JournalBuilder, name: str, *, uid: str, times: int, kind: str = "Node") -> None:
    for _ in range(times):
        story.write(kind, name, lambda _: None, manager=MANAGER, code=409)
        story.revisions[-1] = msgspec.structs.replace(story.revisions[-1], uid=uid)


@pytest.mark.parametrize(
    ("uid", "kind", "problems"),
    [("uid-again", "Node", 1), ("", "Node", 1), ("uid-n1", "Node", 0), ("", "Pod", 0)],
)
def test_a_conflict_is_with_the_node_that_it_names_or_else_with_that_of_its_name(
    uid: str, kind: str, problems: int
) -> None:
    story = JournalBuilder("n1")
    story.delete("Node", "n1")
    story.node("n1", uid="uid-again")
    story.take_lease("n1")
    conflict(story, "n1", uid="uid-again", times=3)
    conflict(story, "n1", uid=uid, times=3, kind=kind)
    assert len(messages(story.journal(), "I10")) == problems


def test_a_node_that_went_and_came_again_went_once() -> None:
    story = JournalBuilder("n0", "n5", "n7")
    story.cordon("n5")
    story.take_lease("n7")
    seen = {"nodes": str(story.revision)}
    story.delete("Node", "n7")
    story.node("n7", uid="uid-again")
    over = story.take_lease("n0", seen=seen)
    assert ("I1", "n0", over.revision) in violations_of(story.journal())


@pytest.mark.parametrize(
    ("verb", "code", "whole"),
    [
        (Verb.CREATE, 201, True),
        (Verb.CREATE, 200, True),
        (Verb.PATCH, 201, True),
        (Verb.PATCH, 200, False),
    ],
)
def test_of_a_node_that_is_made_here_everything_is_known(
    verb: Verb, code: int, whole: bool
) -> None:
    story = JournalBuilder("n1")
    story.revisions[0] = msgspec.structs.replace(story.revisions[0], verb=verb, code=code)
    assert timeline(story).nodes["uid-n1"].is_complete is whole


# What a Node is.


def test_a_lease_of_others_is_no_upgrade_and_without_a_lease_nothing_is_done() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    facts = timeline(story).nodes["uid-n1"].latest
    assert (facts.upgrade, facts.operation) == (facts.lease, Operation.UPGRADE)
    lease = encode(story.lease("n1", 7, LeaseOwner.HUMAN)).decode()
    story.annotate("n1", LEASE_ANNOTATION, lease)
    facts = timeline(story).nodes["uid-n1"].latest
    assert (facts.upgrade, facts.operation, facts.leased_away) == (None, None, True)
    story.annotate("n1", LEASE_ANNOTATION, None)
    facts = timeline(story).nodes["uid-n1"].latest
    assert (facts.upgrade, facts.operation, facts.leased_away) == (None, None, False)


def test_a_lease_that_nobody_can_read_takes_a_node_away() -> None:
    story = JournalBuilder("n1")
    story.annotate("n1", LEASE_ANNOTATION, "garbled")
    facts = timeline(story).nodes["uid-n1"].latest
    assert (facts.lease, facts.leased_away, facts.unavailable) == (None, True, True)


# What was there when the journal began.


def begun(story: JournalBuilder, *fields: dict[str, Any]) -> Timeline:
    """One Node, with these fields of ours."""
    whole = story.objects["Node", "n1"]
    owned = [{"manager": MANAGER, "fieldsV1": one} for one in fields]
    start = {"kind": "Node", **whole, "metadata": {**whole["metadata"], "managedFields": owned}}
    return Timeline((), (start,))


def test_a_node_that_says_nothing_of_its_state_is_taken_for_ready() -> None:
    story = JournalBuilder("n1")
    del story.objects["Node", "n1"]["status"]
    assert begun(story).nodes["uid-n1"].at(-1).ready


def test_its_annotations_are_no_labels() -> None:
    story = JournalBuilder()
    story.node("n1", labels={"rack": "a"})
    story.annotate("n1", "rack", "b")
    story.annotate("n1", "row", "c")
    labels = begun(story).nodes["uid-n1"].labels
    assert (labels["rack"], "row" in labels) == ("a", False)


def test_who_signed_a_field_of_it_and_whose_its_cordon_is() -> None:
    story = JournalBuilder("n1")
    ours = {"f:metadata": {"f:labels": {"f:a/b": {}}}}
    life = begun(story).nodes["uid-n1"]
    assert (life.was_ours, life.cordoned_by_others) == (False, None)
    life = begun(story, ours).nodes["uid-n1"]
    assert (life.was_ours, life.cordoned_by_others) == (True, False)
    story.cordon("n1")
    assert begun(story, ours).nodes["uid-n1"].cordoned_by_others is True
    cordon = {"f:spec": {"f:unschedulable": {}}}
    assert begun(story, cordon).nodes["uid-n1"].cordoned_by_others is False
