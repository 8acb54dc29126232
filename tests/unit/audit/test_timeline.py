"""The replayed journal: writes, the Nodes they belong to, and the objects at the start."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.audit.nodes import ReplayedNode
from libs.audit.timeline import Timeline
from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, Operation
from tests.unit.audit.builders import JournalBuilder, cases, messages, violations_of


def timeline(story: str) -> Timeline:
    return Timeline(JournalBuilder("n1", "n2").play(story).revisions, ())


def state_of(story: str) -> ReplayedNode:
    return timeline(story).nodes["uid-n1"].latest


@pytest.mark.parametrize(("code", "problems"), [(200, 1), (299, 1), (300, 0), (409, 0)])
def test_refused_writes_change_nothing(code: int, problems: int) -> None:
    builder = JournalBuilder("n1").play(f"cordon; rewrite cordon=False; edit_last code={code}")
    assert len(messages(builder.journal(), "I4")) == problems


def test_a_refused_patch_is_no_write_of_ours() -> None:
    builder = JournalBuilder("n1")
    builder.apply("n1", verb=Verb.PATCH, code=409)
    assert violations_of(builder.journal()) == []


def test_a_revision_before_the_first_known_one_has_the_position_minus_one() -> None:
    revisions = JournalBuilder("n1", "n2").play("delete Node n2; require").revisions
    known = Timeline(revisions[2:], ())
    assert [known.position_of(number) for number in (102, 104)] == [-1, 1]


def test_a_record_is_lost_by_writes_of_others_but_not_with_its_node() -> None:
    changes = timeline("require; require n2; lose_record value=None; delete Node n2").changes
    assert [change.record_lost for change in changes[-2:]] == [True, False]


def test_a_pod_is_deleted_by_the_first_deletion() -> None:
    builder = JournalBuilder().play("pod p1; delete Pod p1; advance 100")
    builder.revisions.append(replace(builder.revisions[-1], time=builder.time))
    deletion = Timeline(builder.revisions, ()).pods["uid-p1"].deletion
    assert deletion is not None
    assert deletion.time == builder.time - 100


def test_a_write_without_a_uid_is_matched_by_name() -> None:
    builder = JournalBuilder("n1")
    builder.play("lease; uncordon; edit_last uid=; cordon; edit_last uid=; release")
    assert messages(builder.journal(), "I4") == [
        "n1 was uncordoned, although kubectl had cordoned it"
    ]


@pytest.mark.parametrize(
    ("uid", "kind", "problems"),
    [("again", "Node", 1), ("", "Node", 1), ("uid-n1", "Node", 0), ("", "Pod", 0)],
)
def test_a_conflict_is_matched_by_uid_or_by_name(uid: str, kind: str, problems: int) -> None:
    builder = JournalBuilder("n1").play("delete Node n1; node uid=again; lease")
    for conflict_uid, conflict_kind in [("again", "Node")] * 3 + [(uid, kind)] * 3:
        builder.write(conflict_kind, "n1", lambda _: None, manager=MANAGER, code=409)
        builder.edit_last(uid=conflict_uid)
    assert len(messages(builder.journal(), "I10")) == problems


@pytest.mark.parametrize(
    ("verb", "code", "is_complete"),
    [
        (Verb.CREATE, 201, True),
        (Verb.CREATE, 200, True),
        (Verb.PATCH, 201, True),
        (Verb.PATCH, 200, False),
    ],
)
def test_a_node_created_in_the_journal_is_complete(
    verb: Verb, code: int, is_complete: bool
) -> None:
    builder = JournalBuilder("n1")
    builder.edit_last(verb=verb, code=code)
    assert Timeline(builder.revisions, ()).nodes["uid-n1"].is_complete is is_complete


@cases(
    "story is_upgrade operation leased_away",
    an_upgrade=("lease", True, Operation.UPGRADE, True),
    a_lease_of_a_person=("lease; give_lease token=7 owner=human", False, None, True),
    no_lease=("lease; lose_lease", False, None, False),
    a_malformed_lease=("annotate n1 sluice.dev/lease garbled", False, None, True),
)
def test_an_operation_needs_an_upgrade_lease(
    story: str, is_upgrade: bool, operation: Operation | None, leased_away: bool
) -> None:
    node = state_of(story)
    shown = (node.upgrade is not None, node.operation, node.leased_away)
    assert shown == (is_upgrade, operation, leased_away)
    assert node.unavailable is (leased_away or node.cordoned)


def at_start(builder: JournalBuilder, *fields: dict[str, Any]) -> Timeline:
    """Return a Node in which we own these fields."""
    metadata = builder.objects["Node", "n1"]["metadata"]
    metadata["managedFields"] = [{"manager": MANAGER, "fieldsV1": owned} for owned in fields]
    return Timeline((), builder.present_objects())


def test_a_node_without_a_ready_condition_is_ready() -> None:
    builder = JournalBuilder("n1")
    del builder.objects["Node", "n1"]["status"]
    assert at_start(builder).nodes["uid-n1"].at(-1).ready


def test_annotations_are_not_labels() -> None:
    builder = JournalBuilder()
    builder.node("n1", labels={"rack": "a"})
    builder.play("annotate n1 rack b; annotate n1 row c")
    labels = at_start(builder).nodes["uid-n1"].labels
    assert (labels["rack"], "row" in labels) == ("a", False)


CORDON = {"f:spec": {"f:unschedulable": {}}}
LABEL = {"f:metadata": {"f:labels": {"f:a/b": {}}}}


@cases(
    "story fields was_ours cordoned_by_others",
    no_owner=("", [], False, None),
    our_label=("", [LABEL], True, False),
    our_label_on_a_cordoned_node=("cordon", [LABEL], True, True),
    our_cordon=("cordon", [CORDON], True, False),
)
def test_managed_fields_show_our_fields_and_the_owner_of_the_cordon(
    story: str, fields: list[dict[str, Any]], was_ours: bool, cordoned_by_others: bool | None
) -> None:
    history = at_start(JournalBuilder("n1").play(story), *fields).nodes["uid-n1"]
    assert (history.was_ours, history.cordoned_by_others) == (was_ours, cordoned_by_others)
