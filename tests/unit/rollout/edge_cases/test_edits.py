"""What follows from edits at the edges: whom nothing follows for, and in which words it is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order
from libs.contracts.node import (
    DRIVER_LABEL,
    MANAGER,
    STATE_LABEL,
    NodeRecord,
    NodeRequest,
    Operation,
)
from libs.rollout.decision import Notice, Step, Wait, WriteNode
from libs.rollout.edits import handle_edits
from libs.rollout.edits.lost_record import highest_token
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    OLD,
    OPERATOR,
    PERSON,
    TOKEN,
    command,
    component,
    done,
    failed,
    granted,
    in_flight_node,
    instant,
    label_of,
    lease,
    node,
    pool,
    required,
)
from tests.unit.rollout.edits.test_adoption import adopted, came
from tests.unit.rollout.edits.test_driver_label import edited
from tests.unit.rollout.edits.test_lost_record import no_record
from tests.unit.rollout.edits.test_requests import asked


def label_edited(view: NodeView, label: str = "another") -> Step:
    """What is done about it."""
    step = handle_edits(edited(view, label), pool(), instant())
    assert isinstance(step, Step)
    return step


def restarting(operation: Operation) -> NodeView:
    """Its label has moved."""
    view = in_flight_node("pod-restart-required", record={"operation": operation})
    return (
        view if operation is Operation.UPGRADE else replace(view, cordoned=False, field_managers={})
    )


def test_a_node_that_came_uncordoned_has_no_cordon_to_take_over() -> None:
    record = adopted(came("drain-required")).record
    assert record is not None
    assert record.cordon_adopted is False


def test_a_failed_node_is_not_brought_up_by_an_edit_without_a_lease() -> None:
    assert handle_edits(edited(failed(), label_of(OLD)), pool(), instant()) is None


def test_an_edit_before_the_start_is_overwritten_by_the_start() -> None:
    view = in_flight_node("pod-deletion-required")
    assert handle_edits(edited(view, "another"), pool(), instant()) is None


def test_nothing_is_stamped_under_a_mere_validation() -> None:
    view = in_flight_node("validation-required", record={"operation": Operation.VALIDATE})
    assert isinstance(view.record, NodeRecord)
    view = replace(view, record=replace(view.record, started=False))
    assert handle_edits(edited(view, "another"), pool(), instant()) is None


def test_an_edit_in_flight_leaves_the_cordon_as_the_operation_has_it() -> None:
    for operation, cordon in ((Operation.UPGRADE, True), (Operation.BRING_UP, None)):
        step = label_edited(restarting(operation))
        (write,) = (one for one in step.actions if isinstance(one, WriteNode))
        assert write.applied.unschedulable is cordon


def test_what_the_label_was_and_is_again_is_told() -> None:
    for label, was in (("another", "set to another"), ("", "removed")):
        (note,) = (one for one in label_edited(done(), label).actions if isinstance(one, Notice))
        assert f"was {was}, which deletes the driver pod" in note.message
        assert note.message.endswith(f"it is restored to {label_of(NEW)}")
    removal = in_flight_node(
        "pod-restart-required", record={"operation": Operation.REMOVE, "target": "", "label": ""}
    )
    (note,) = (one for one in label_edited(removal).actions if isinstance(one, Notice))
    assert note.message.endswith("it is restored to no value")


# A record that is lost.


def lost(view: NodeView) -> str:
    """Why it cannot be told where the node stands; empty: it can."""
    outcome = handle_edits(view, pool(), instant())
    return outcome.detail if isinstance(outcome, Wait) and outcome.code == "record-lost" else ""


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (no_record(done()), "the upgrade record is missing"),
        (
            done(record=MalformedAnnotation("not JSON")),
            "the upgrade record cannot be read: not JSON",
        ),
        (
            node(state="upgrade-done", field_managers={NodeField.STATE: (MANAGER,)}),
            "the upgrade record is missing",
        ),
        (node(field_managers={NodeField.STATE: (MANAGER,)}), ""),
        (node(field_managers={NodeField.DRIVER: (MANAGER,)}), ""),
        (
            node(lease=MalformedAnnotation("{"), field_managers={NodeField.LEASE: (MANAGER,)}),
            "the upgrade record is missing",
        ),
        (
            node(record=MalformedAnnotation("{"), field_managers={NodeField.RECORD: (MANAGER,)}),
            "the upgrade record cannot be read: {",
        ),
        (node(lease=MalformedAnnotation("{"), field_managers={NodeField.LEASE: (PERSON,)}), ""),
        (node(lease=lease(node_uid="another"), field_managers={NodeField.LEASE: (MANAGER,)}), ""),
        (
            required(
                field_managers={**required().field_managers, NodeField.RECORD: (MANAGER, PERSON)}
            ),
            "",
        ),
    ],
)
def test_what_shows_that_a_record_was_lost(view: NodeView, why: str) -> None:
    assert lost(view) == why


def test_the_record_of_a_node_that_was_here_before_is_none_that_we_lost() -> None:
    """Whatever was put back with it."""
    assert lost(replace(required(), uid="uid-new")) == ""


@pytest.mark.parametrize(
    ("highest", "slot", "uid", "begun"),
    [
        (TOKEN, 0, "uid-node-1", True),
        (TOKEN - 1, 0, "uid-node-1", False),
        (0, TOKEN, "uid-node-1", True),
        (0, TOKEN - 1, "uid-node-1", False),
        (0, TOKEN, "another", False),
    ],
)
def test_what_an_agent_or_a_slot_shows_of_a_place_is_a_sign_of_us(
    highest: int, slot: int, uid: str, *, begun: bool
) -> None:
    order = (slot, 1)
    told = replace(command(Idle(), order=order), node_uid=uid) if slot else None
    part = component(told, highest_order=Order(highest, 1))
    view = node(components={"driver": part})
    outcome = handle_edits(view, granted(pool(), view, token=TOKEN), instant())
    assert isinstance(outcome, Wait) is begun


def test_tokens_of_a_node_that_was_here_before_are_not_of_this_one() -> None:
    told = component(command(Idle(), order=(TOKEN, 1)), highest_order=Order(0, 0))
    view = done(components={"driver": told})
    assert highest_token(view, pool()) == TOKEN
    assert highest_token(replace(view, uid="uid-new"), pool()) == 0


@pytest.mark.parametrize(("state", "said"), [("upgrade-done", "upgrade-done"), ("", "no state")])
def test_what_the_label_said_when_it_was_adopted_is_kept_as_the_cause(
    state: str, said: str
) -> None:
    view = asked(no_record(failed(target=OLD, state=state)), NodeRequest.ADOPT)
    assert applied(view).record.cause == f"adopted by {PERSON} in {said}"


# Requests and states.


def applied(view: NodeView) -> Any:
    """What is written."""
    step = handle_edits(view, pool(), instant())
    assert isinstance(step, Step)
    (write,) = (one for one in step.actions if isinstance(one, WriteNode))
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
def test_whose_label_is_applied_with_a_request_that_is_taken_away(
    view: NodeView, owner: str, kept: str
) -> None:
    view = replace(view, field_managers={**view.field_managers, NodeField.DRIVER: (owner,)})
    assert applied(asked(view, NodeRequest.ADOPT)).driver_label == kept


def state_edited(view: NodeView, state: str, **record: object) -> NodeView:
    """Somebody wrote another state."""
    assert isinstance(view.record, NodeRecord)
    owners = {**view.field_managers, NodeField.STATE: (PERSON,)}
    return replace(view, state=state, field_managers=owners, record=replace(view.record, **record))


@pytest.mark.parametrize(
    ("state", "was"), [("drain-required", "set to drain-required"), ("", "removed")]
)
def test_what_the_state_was_and_is_again_is_told(state: str, was: str) -> None:
    step = handle_edits(state_edited(failed(), state), pool(), instant())
    assert isinstance(step, Step)
    (note,) = (one for one in step.actions if isinstance(one, Notice))
    assert f"was {was}, and is restored to upgrade-failed." in note.message


@pytest.mark.parametrize(("state", "says"), [("drain-required", "drain-required"), ("", "missing")])
def test_what_a_second_edit_says_is_told_too(state: str, says: str) -> None:
    outcome = handle_edits(state_edited(failed(), state, edits=1), pool(), instant())
    assert isinstance(outcome, Wait)
    assert outcome.detail.endswith(f" is {says} instead of upgrade-failed")


def test_of_a_second_edit_all_is_named_that_has_to_be_put_back() -> None:
    view = state_edited(restarting(Operation.UPGRADE), "", edits=1)
    outcome = handle_edits(edited(view, ""), pool(), instant())
    assert isinstance(outcome, Wait)
    assert f"{STATE_LABEL} is missing instead of pod-restart-required" in outcome.detail
    assert f"{DRIVER_LABEL} is missing instead of {label_of(NEW)}" in outcome.detail
    assert outcome.who == f"{PERSON}, by restoring the value; then an administrator, by a retry"


def test_a_state_that_is_put_back_leaves_cordon_and_label_as_they_are_in_flight() -> None:
    bare = replace(restarting(Operation.BRING_UP), driver_label=label_of(NEW))
    assert applied(state_edited(bare, "")).unschedulable is None
    theirs = {NodeField.DRIVER: (OPERATOR,)}
    flies = state_edited(in_flight_node("drain-required"), "")
    assert applied(replace(flies, field_managers=theirs)).driver_label == label_of(OLD)
    rests = state_edited(failed(driver_label="theirs"), "")
    assert applied(replace(rests, field_managers=theirs)).driver_label == ""
