"""Requests by annotation: fulfilled once, removed and reported (docs/states.md#people)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import (
    MANAGER,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    NodeRequest,
)
from libs.rollout.decision import (
    Candidate,
    NodeApplyConfiguration,
    Notice,
    NoticeKind,
    Step,
    WriteNode,
)
from libs.rollout.requests import consume_requests
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    OLD,
    OPERATOR,
    PERSON,
    apply_step,
    done,
    failed,
    handle_edits,
    in_flight_node,
    instant,
    label_of,
    node,
    pool,
    required,
    step_at_rest,
)
from tests.unit.rollout.outcomes import step_of

WAIVED = NodeRequest.WITHOUT_PREFLIGHT


def with_request(view: NodeView, request: NodeRequest) -> NodeView:
    owners = {**view.field_managers, NodeField.REQUEST: (PERSON,)}
    return replace(view, request=request, field_managers=owners)


def consumed(view: NodeView) -> tuple[WriteNode, Notice]:
    step = step_of(handle_edits(view))
    write, note = step.actions
    assert isinstance(write, WriteNode)
    assert isinstance(note, Notice)
    later = apply_step(view, step)
    assert handle_edits(later) is None
    return write, note


NEEDLESS = {
    "adopt, and nothing is lost": with_request(done(), NodeRequest.ADOPT),
    "forget, and nothing is lost": with_request(done(), NodeRequest.FORGET),
    "forget, in flight": with_request(in_flight_node("drain-required"), NodeRequest.FORGET),
    "adopt, never ours": with_request(node(), NodeRequest.ADOPT),
    "no preflight, in place": with_request(done(), WAIVED),
    "no preflight, after the start": with_request(in_flight_node("pod-restart-required"), WAIVED),
}


@pytest.mark.parametrize("case", NEEDLESS)
def test_a_needless_request_is_removed_without_other_changes(case: str) -> None:
    result = NEEDLESS[case]
    write, note = consumed(result)
    assert write.applied.cleared == (REQUEST_ANNOTATION,)
    assert write.applied.record == result.current_record
    assert write.applied.lease == result.lease
    assert (write.applied.state, write.applied.driver_label) == (result.state, result.driver_label)
    assert write.applied.unschedulable is (True if result.cordoned else None)
    assert (note.kind, note.field, note.manager) == (NoticeKind.REQUEST, "request", PERSON)
    assert note.message


def test_a_failed_node_is_forgotten_on_request_and_stays_cordoned() -> None:
    write, note = consumed(with_request(failed(), NodeRequest.FORGET))
    assert write.applied == NodeApplyConfiguration(
        driver_label=label_of(NEW), unschedulable=True, cleared=(REQUEST_ANNOTATION,)
    )
    assert (note.kind, note.manager) == (NoticeKind.REQUEST, PERSON)


KEPT = {
    "for a node that is stamped": with_request(required(), WAIVED),
    "for a failed one": with_request(failed(), WAIVED),
    "for one that is about to be stamped": with_request(done(target=OLD), WAIVED),
    "for one that was never ours": with_request(node(), WAIVED),
    "of a kind that is not known here": with_request(done(), NodeRequest("later")),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_request_is_kept_until_it_applies(case: str) -> None:
    assert handle_edits(KEPT[case]) is None


def test_a_start_consumes_the_requests_that_it_fulfils() -> None:
    assert consume_requests(node()) == ((), ())
    keys, notes = consume_requests(replace(with_request(required(), WAIVED), requested=True))
    assert keys == (REQUEST_ANNOTATION, REQUESTED_ANNOTATION)
    assert [note.kind for note in notes] == [NoticeKind.REQUEST, NoticeKind.REQUEST]
    assert consume_requests(with_request(required(), NodeRequest.ADOPT)) == ((), ())


# The GPU Operator's annotation.


@pytest.mark.parametrize("view", [done(), failed(), required(), done(target=OLD)])
def test_the_requested_annotation_acts_as_a_retry(view: NodeView) -> None:
    owners = {**view.field_managers, NodeField.REQUESTED: (OPERATOR,)}
    wanting = replace(view, requested=True, field_managers=owners)
    write, note = consumed(wanting)
    assert write.applied.cleared == (REQUESTED_ANNOTATION,)
    record = write.applied.record
    assert record is not None
    assert (record.state, record.asked) == ("upgrade-required", True)
    assert (note.kind, note.field, note.manager) == (NoticeKind.REQUEST, "requested", OPERATOR)
    later = apply_step(wanting, Step(actions=(write,), because=""))
    assert isinstance(step_at_rest(later), Candidate)


def test_in_flight_the_requested_annotation_is_left_alone() -> None:
    assert handle_edits(in_flight_node("drain-required", requested=True)) is None


def test_a_request_to_a_live_foreign_operator_is_left_alone() -> None:
    leads = instant(foreign_operator="gpu-operator leads here")
    assert handle_edits(done(requested=True), pool(), leads) is None


def test_both_kinds_of_retry_requests_are_one_retry() -> None:
    view = done(requested=True)
    with_both = replace(view, state="upgrade-required")
    write, _ = consumed(with_both)
    assert write.applied.cleared == (REQUESTED_ANNOTATION,)


def applied_by(view: NodeView) -> Any:
    step = step_of(handle_edits(view))
    (write,) = (action for action in step.actions if isinstance(action, WriteNode))
    return write.applied


@pytest.mark.parametrize(
    ("view", "owner", "kept"),
    [
        (node(driver_label="theirs"), OPERATOR, ""),
        (node(driver_label=label_of(NEW)), MANAGER, label_of(NEW)),
        (in_flight_node("drain-required"), OPERATOR, label_of(OLD)),
        (required(driver_label="theirs"), OPERATOR, ""),
    ],
)
def test_a_removed_request_keeps_only_a_driver_label_of_ours(
    view: NodeView, owner: str, kept: str
) -> None:
    view = replace(view, field_managers={**view.field_managers, NodeField.DRIVER: (owner,)})
    assert applied_by(with_request(view, NodeRequest.ADOPT)).driver_label == kept
