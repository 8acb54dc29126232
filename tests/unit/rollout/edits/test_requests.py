"""What people ask for by annotation: done once, taken away, told (docs/states.md#people)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import (
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    Request,
)
from libs.rollout.decision import Candidate, Note, Step, Told, WriteNode
from libs.rollout.edits import edits, spent
from libs.rollout.rest import rest
from libs.rollout.views.node import Field, NodeView
from libs.rollout.writes import readable
from tests.unit.rollout.building import (
    OLD,
    OPERATOR,
    PERSON,
    after,
    done,
    failed,
    instant,
    node,
    pool,
    required,
    under_way,
)

WAIVED = Request.WITHOUT_PREFLIGHT


def asked(made: NodeView, request: Request) -> NodeView:
    owners = {**made.owners, Field.REQUEST: (PERSON,)}
    return replace(made, request=request, owners=owners)


def taken_away(made: NodeView) -> tuple[WriteNode, Note]:
    step = edits(made, pool(), instant())
    assert isinstance(step, Step), step
    write, note = step.actions
    assert isinstance(write, WriteNode)
    assert isinstance(note, Note)
    later = after(made, step)
    assert edits(later, pool(), instant()) is None
    return write, note


NEEDLESS = {
    "adopt, and nothing is lost": asked(done(), Request.ADOPT),
    "forget, and nothing is lost": asked(failed(), Request.FORGET),
    "forget, in flight": asked(under_way("drain-required"), Request.FORGET),
    "adopt, never ours": asked(node(), Request.ADOPT),
    "no preflight, in place": asked(done(), WAIVED),
    "no preflight, after the start": asked(under_way("pod-restart-required"), WAIVED),
}


@pytest.mark.parametrize("case", NEEDLESS)
def test_what_is_not_the_case_is_taken_away_and_nothing_else_changes(case: str) -> None:
    made = NEEDLESS[case]
    write, note = taken_away(made)
    assert write.applied.cleared == (REQUEST_ANNOTATION,)
    assert write.applied.record == readable(made)
    assert write.applied.lease == made.lease
    assert (write.applied.state, write.applied.driver_label) == (made.state, made.driver_label)
    assert write.applied.unschedulable is (True if made.cordoned else None)
    assert (note.told, note.field, note.manager) == (Told.REQUEST, "request", PERSON)
    assert note.message


KEPT = {
    "for a node that is stamped": asked(required(), WAIVED),
    "for a failed one": asked(failed(), WAIVED),
    "for one that is about to be stamped": asked(done(target=OLD), WAIVED),
    "for one that was never ours": asked(node(), WAIVED),
    "of a kind that is not known here": asked(done(), Request("later")),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_request_is_kept_until_there_is_something_to_do_about_it(case: str) -> None:
    assert edits(KEPT[case], pool(), instant()) is None


def test_a_start_takes_away_what_it_did() -> None:
    assert spent(node()) == ((), ())
    keys, notes = spent(replace(asked(required(), WAIVED), requested=True))
    assert keys == (REQUEST_ANNOTATION, REQUESTED_ANNOTATION)
    assert [note.told for note in notes] == [Told.REQUEST, Told.REQUEST]
    assert spent(asked(required(), Request.ADOPT)) == ((), ())


# The GPU Operator's annotation.


@pytest.mark.parametrize("made", [done(), failed(), required(), done(target=OLD)])
def test_its_annotation_is_as_a_state_of_upgrade_required(made: NodeView) -> None:
    owners = {**made.owners, Field.REQUESTED: (OPERATOR,)}
    wanting = replace(made, requested=True, owners=owners)
    write, note = taken_away(wanting)
    assert write.applied.cleared == (REQUESTED_ANNOTATION,)
    record = write.applied.record
    assert record is not None
    assert (record.state, record.asked) == ("upgrade-required", True)
    assert (note.told, note.field, note.manager) == (Told.REQUEST, "requested", OPERATOR)
    later = after(wanting, Step(actions=(write,), because=""))
    assert isinstance(rest(later, pool(), instant()), Candidate)


def test_in_flight_it_is_left_until_that_upgrade_has_ended() -> None:
    assert edits(under_way("drain-required", requested=True), pool(), instant()) is None


def test_what_is_asked_of_an_operator_at_work_here_is_not_ours() -> None:
    leads = instant(foreign_operator="gpu-operator leads here")
    assert edits(done(requested=True), pool(), leads) is None


def test_both_ways_to_ask_at_once_are_one_retry() -> None:
    made = done(requested=True)
    twice = replace(made, state="upgrade-required")
    write, _ = taken_away(twice)
    assert write.applied.cleared == (REQUESTED_ANNOTATION,)
