"""What people ask for by annotation: done once, taken away, told (docs/states.md#people)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import (
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    NodeRequest,
)
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, Notice, NoticeKind, Step, WriteNode
from libs.rollout.edits import consume_requests, handle_edits
from libs.rollout.node_writes import current_record
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import (
    OLD,
    OPERATOR,
    PERSON,
    apply_step,
    done,
    failed,
    in_flight_node,
    instant,
    node,
    pool,
    required,
)

WAIVED = NodeRequest.WITHOUT_PREFLIGHT


def asked(made: NodeView, request: NodeRequest) -> NodeView:
    owners = {**made.field_managers, NodeField.REQUEST: (PERSON,)}
    return replace(made, request=request, field_managers=owners)


def taken_away(made: NodeView) -> tuple[WriteNode, Notice]:
    step = handle_edits(made, pool(), instant())
    assert isinstance(step, Step), step
    write, note = step.actions
    assert isinstance(write, WriteNode)
    assert isinstance(note, Notice)
    later = apply_step(made, step)
    assert handle_edits(later, pool(), instant()) is None
    return write, note


NEEDLESS = {
    "adopt, and nothing is lost": asked(done(), NodeRequest.ADOPT),
    "forget, and nothing is lost": asked(failed(), NodeRequest.FORGET),
    "forget, in flight": asked(in_flight_node("drain-required"), NodeRequest.FORGET),
    "adopt, never ours": asked(node(), NodeRequest.ADOPT),
    "no preflight, in place": asked(done(), WAIVED),
    "no preflight, after the start": asked(in_flight_node("pod-restart-required"), WAIVED),
}


@pytest.mark.parametrize("case", NEEDLESS)
def test_what_is_not_the_case_is_taken_away_and_nothing_else_changes(case: str) -> None:
    made = NEEDLESS[case]
    write, note = taken_away(made)
    assert write.applied.cleared == (REQUEST_ANNOTATION,)
    assert write.applied.record == current_record(made)
    assert write.applied.lease == made.lease
    assert (write.applied.state, write.applied.driver_label) == (made.state, made.driver_label)
    assert write.applied.unschedulable is (True if made.cordoned else None)
    assert (note.kind, note.field, note.manager) == (NoticeKind.REQUEST, "request", PERSON)
    assert note.message


KEPT = {
    "for a node that is stamped": asked(required(), WAIVED),
    "for a failed one": asked(failed(), WAIVED),
    "for one that is about to be stamped": asked(done(target=OLD), WAIVED),
    "for one that was never ours": asked(node(), WAIVED),
    "of a kind that is not known here": asked(done(), NodeRequest("later")),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_request_is_kept_until_there_is_something_to_do_about_it(case: str) -> None:
    assert handle_edits(KEPT[case], pool(), instant()) is None


def test_a_start_takes_away_what_it_did() -> None:
    assert consume_requests(node()) == ((), ())
    keys, notes = consume_requests(replace(asked(required(), WAIVED), requested=True))
    assert keys == (REQUEST_ANNOTATION, REQUESTED_ANNOTATION)
    assert [note.kind for note in notes] == [NoticeKind.REQUEST, NoticeKind.REQUEST]
    assert consume_requests(asked(required(), NodeRequest.ADOPT)) == ((), ())


# The GPU Operator's annotation.


@pytest.mark.parametrize("made", [done(), failed(), required(), done(target=OLD)])
def test_its_annotation_is_as_a_state_of_upgrade_required(made: NodeView) -> None:
    owners = {**made.field_managers, NodeField.REQUESTED: (OPERATOR,)}
    wanting = replace(made, requested=True, field_managers=owners)
    write, note = taken_away(wanting)
    assert write.applied.cleared == (REQUESTED_ANNOTATION,)
    record = write.applied.record
    assert record is not None
    assert (record.state, record.asked) == ("upgrade-required", True)
    assert (note.kind, note.field, note.manager) == (NoticeKind.REQUEST, "requested", OPERATOR)
    later = apply_step(wanting, Step(actions=(write,), because=""))
    assert isinstance(step_at_rest(later, pool(), instant()), Candidate)


def test_in_flight_it_is_left_until_that_upgrade_has_ended() -> None:
    assert handle_edits(in_flight_node("drain-required", requested=True), pool(), instant()) is None


def test_what_is_asked_of_an_operator_at_work_here_is_not_ours() -> None:
    leads = instant(foreign_operator="gpu-operator leads here")
    assert handle_edits(done(requested=True), pool(), leads) is None


def test_both_ways_to_ask_at_once_are_one_retry() -> None:
    made = done(requested=True)
    twice = replace(made, state="upgrade-required")
    write, _ = taken_away(twice)
    assert write.applied.cleared == (REQUESTED_ANNOTATION,)
