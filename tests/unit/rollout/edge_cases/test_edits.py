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
    with_record,
)
from tests.unit.rollout.edits.test_adoption import adopted, foreign_node
from tests.unit.rollout.edits.test_driver_label import edited
from tests.unit.rollout.edits.test_lost_record import no_record
from tests.unit.rollout.edits.test_requests import with_request
from tests.unit.rollout.outcomes import step_of, wait_of


def step_after_label_edit(view: NodeView, label: str = "another") -> Step:
    return step_of(handle_edits(edited(view, label), pool(), instant()))


def node_at_restart(operation: Operation) -> NodeView:
    view = in_flight_node("pod-restart-required", record={"operation": operation})
    return (
        view if operation is Operation.UPGRADE else replace(view, cordoned=False, field_managers={})
    )


def test_a_node_adopted_uncordoned_has_no_adopted_cordon() -> None:
    record = adopted(foreign_node("drain-required")).record
    assert record is not None
    assert record.cordon_adopted is False


def test_a_label_edit_does_not_bring_up_a_failed_node_without_a_lease() -> None:
    assert handle_edits(edited(failed(), label_of(OLD)), pool(), instant()) is None


def test_a_label_edit_before_the_start_is_overwritten_by_the_start() -> None:
    view = in_flight_node("pod-deletion-required")
    assert handle_edits(edited(view, "another"), pool(), instant()) is None


def test_a_label_edit_during_a_mere_validation_stamps_nothing() -> None:
    view = in_flight_node("validation-required", record={"operation": Operation.VALIDATE})
    view = with_record(view, started=False)
    assert handle_edits(edited(view, "another"), pool(), instant()) is None


def test_a_label_edit_in_flight_leaves_the_cordon_alone() -> None:
    for operation, cordon in ((Operation.UPGRADE, True), (Operation.BRING_UP, None)):
        step = step_after_label_edit(node_at_restart(operation))
        (write,) = (one for one in step.actions if isinstance(one, WriteNode))
        assert write.applied.unschedulable is cordon


def test_a_label_edit_notice_names_the_old_and_the_restored_label() -> None:
    for label, was in (("another", "another"), ("", "removed")):
        (note,) = (
            one for one in step_after_label_edit(done(), label).actions if isinstance(one, Notice)
        )
        assert f"was {was}; its driver pod goes with it" in note.message
        assert note.message.endswith(f"the node is given {label_of(NEW)} again")
    removal = in_flight_node(
        "pod-restart-required", record={"operation": Operation.REMOVE, "target": "", "label": ""}
    )
    (note,) = (one for one in step_after_label_edit(removal).actions if isinstance(one, Notice))
    assert note.message.endswith("the node is given none again")


# A record that is lost.


def loss_reason(view: NodeView) -> str:
    outcome = handle_edits(view, pool(), instant())
    return outcome.detail if isinstance(outcome, Wait) and outcome.code == "record-lost" else ""


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (no_record(done()), "its record is gone"),
        (done(record=MalformedAnnotation("not JSON")), "its record cannot be read: not JSON"),
        (
            node(state="upgrade-done", field_managers={NodeField.STATE: (MANAGER,)}),
            "its record is gone",
        ),
        (node(field_managers={NodeField.STATE: (MANAGER,)}), ""),
        (node(field_managers={NodeField.DRIVER: (MANAGER,)}), ""),
        (
            node(lease=MalformedAnnotation("{"), field_managers={NodeField.LEASE: (MANAGER,)}),
            "its record is gone",
        ),
        (
            node(record=MalformedAnnotation("{"), field_managers={NodeField.RECORD: (MANAGER,)}),
            "its record cannot be read: {",
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
    assert loss_reason(view) == why


def test_the_record_of_an_earlier_node_is_not_a_lost_record() -> None:
    assert loss_reason(replace(required(), uid="uid-new")) == ""


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
def test_a_report_or_slot_with_the_granted_token_shows_a_lost_record(
    highest: int, slot: int, uid: str, *, begun: bool
) -> None:
    order = (slot, 1)
    told = replace(command(Idle(), order=order), node_uid=uid) if slot else None
    part = component(told, highest_order=Order(highest, 1))
    view = node(components={"driver": part})
    outcome = handle_edits(view, granted(pool(), view, token=TOKEN), instant())
    assert isinstance(outcome, Wait) is begun


def test_tokens_of_an_earlier_node_do_not_count() -> None:
    told = component(command(Idle(), order=(TOKEN, 1)), highest_order=Order(0, 0))
    view = done(components={"driver": told})
    assert highest_token(view, pool()) == TOKEN
    assert highest_token(replace(view, uid="uid-new"), pool()) == 0


@pytest.mark.parametrize(("state", "said"), [("upgrade-done", "upgrade-done"), ("", "no state")])
def test_adoption_keeps_the_state_label_as_the_cause(state: str, said: str) -> None:
    view = with_request(no_record(failed(target=OLD, state=state)), NodeRequest.ADOPT)
    assert applied_by(view).record.cause == f"adopted by {PERSON} in {said}"


# Requests and states.


def applied_by(view: NodeView) -> Any:
    step = step_of(handle_edits(view, pool(), instant()))
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
def test_a_removed_request_keeps_only_a_driver_label_of_ours(
    view: NodeView, owner: str, kept: str
) -> None:
    view = replace(view, field_managers={**view.field_managers, NodeField.DRIVER: (owner,)})
    assert applied_by(with_request(view, NodeRequest.ADOPT)).driver_label == kept


def state_edited(view: NodeView, state: str, **record: object) -> NodeView:
    assert isinstance(view.record, NodeRecord)
    owners = {**view.field_managers, NodeField.STATE: (PERSON,)}
    return replace(view, state=state, field_managers=owners, record=replace(view.record, **record))


@pytest.mark.parametrize(("state", "was"), [("drain-required", "drain-required"), ("", "removed")])
def test_a_state_edit_notice_names_the_old_and_the_restored_state(state: str, was: str) -> None:
    step = step_of(handle_edits(state_edited(failed(), state), pool(), instant()))
    (note,) = (one for one in step.actions if isinstance(one, Notice))
    assert f"was {was}; it says where the node stands, and is upgrade-failed again" in note.message


@pytest.mark.parametrize(("state", "says"), [("drain-required", "drain-required"), ("", "gone")])
def test_a_second_state_edit_names_the_edited_state(state: str, says: str) -> None:
    outcome = wait_of(handle_edits(state_edited(failed(), state, edits=1), pool(), instant()))
    assert outcome.detail.endswith(f" is {says}, and the record says upgrade-failed")


def test_a_second_edit_names_every_label_to_restore() -> None:
    view = state_edited(node_at_restart(Operation.UPGRADE), "", edits=1)
    outcome = wait_of(handle_edits(edited(view, ""), pool(), instant()))
    assert f"{STATE_LABEL} is gone, and the record says pod-restart-required" in outcome.detail
    assert f"{DRIVER_LABEL} is gone, and the record says {label_of(NEW)}" in outcome.detail
    assert outcome.who == f"{PERSON}, by putting it back; then a retry"


def test_a_restored_state_leaves_cordon_and_driver_label_alone() -> None:
    bare = replace(node_at_restart(Operation.BRING_UP), driver_label=label_of(NEW))
    assert applied_by(state_edited(bare, "")).unschedulable is None
    theirs = {NodeField.DRIVER: (OPERATOR,)}
    flies = state_edited(in_flight_node("drain-required"), "")
    assert applied_by(replace(flies, field_managers=theirs)).driver_label == label_of(OLD)
    rests = state_edited(failed(driver_label="theirs"), "")
    assert applied_by(replace(rests, field_managers=theirs)).driver_label == ""
