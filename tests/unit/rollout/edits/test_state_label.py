"""Edits of the state label (docs/states.md#people)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import (
    DRIVER_LABEL,
    MANAGER,
    STATE_LABEL,
    LeaseOwner,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.rollout.decision import Candidate, Notice, NoticeKind, Step, Wait, WriteNode
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    OPERATOR,
    PERSON,
    apply_step,
    done,
    evidence,
    failed,
    handle_edits,
    in_flight_node,
    instant,
    label_of,
    lease,
    pool,
    required,
    step_at_rest,
)
from tests.unit.rollout.edits.test_driver_label import edited as label_edited
from tests.unit.rollout.outcomes import candidate_of, step_of, wait_of


def edited(node: NodeView, state: str, *, by: str = PERSON) -> NodeView:
    """Return the node as the API server shows it: a removed label has no owner."""
    owners = {**node.field_managers, NodeField.STATE: (by,)}
    if not state:
        del owners[NodeField.STATE]
    return replace(node, state=state, field_managers=owners, last_managers={NodeField.STATE: by})


def write(step: object) -> WriteNode:
    assert isinstance(step, Step), step
    (action,) = (action for action in step.actions if isinstance(action, WriteNode))
    return action


def note(step: object) -> Notice:
    assert isinstance(step, Step)
    (action,) = (action for action in step.actions if isinstance(action, Notice))
    return action


# upgrade-required, on a node that is done or failed: a retry.

RETRIED = {
    "done": (done(), evidence(NEW)),
    "done, and its policy wants another anyway": (done(target=OLD), evidence(OLD)),
    "failed": (failed(), None),
}


@pytest.mark.parametrize("case", RETRIED)
def test_upgrade_required_on_a_finished_node_is_a_retry(case: str) -> None:
    ended, proof = RETRIED[case]
    node = edited(ended, "upgrade-required")
    step = handle_edits(node)
    record = write(step).applied.record
    assert record is not None
    assert (record.state, record.asked, record.since) == ("upgrade-required", True, NOW)
    assert record.cause == "requested by somebody with kubectl"
    assert record.evidence == proof
    assert write(step).applied.unschedulable is (True if ended.cordoned else None)
    notice = note(step)
    assert (notice.kind, notice.manager, notice.after) == (
        NoticeKind.REQUEST,
        PERSON,
        "upgrade-required",
    )
    assert isinstance(step, Step)
    later = apply_step(node, step)
    assert handle_edits(later) is None
    assert isinstance(step_at_rest(later), Candidate)


def test_a_requested_retry_is_done_despite_matching_evidence() -> None:
    node = edited(done(), "upgrade-required")
    step = step_of(handle_edits(node))
    outcome = candidate_of(step_at_rest(apply_step(node, step)))
    assert outcome.operation is Operation.SAME_LABEL


def test_a_retry_ends_back_off_and_restarts() -> None:
    view = done()
    record = view.current_record
    assert record is not None
    burdened = replace(
        record, back_off_until=NOW + 9, back_off_seconds=600.0, restarts=(NOW,), edits=1
    )
    step = handle_edits(edited(replace(view, record=burdened), "upgrade-required"))
    cleared = write(step).applied.record
    assert cleared is not None
    assert (cleared.back_off_until, cleared.back_off_seconds) == (0.0, 0.0)
    assert cleared.restarts == ()


# Any other edit is reverted once.

OTHER = [
    ("done", done(), "upgrade-failed"),
    ("done", done(), "pod-restart-required"),
    ("done", done(), "nonsense"),
    ("done", done(), ""),
    ("failed", failed(), "upgrade-done"),
    ("failed", failed(), "uncordon-required"),
    ("failed", failed(), ""),
    ("stamped", required(), "upgrade-done"),
    ("stamped", required(), ""),
    ("waits for jobs", in_flight_node("wait-for-jobs-required"), "upgrade-done"),
    ("waits for jobs", in_flight_node("wait-for-jobs-required"), "upgrade-required"),
    ("evicts", in_flight_node("pod-deletion-required"), "pod-restart-required"),
    ("drains", in_flight_node("drain-required"), "upgrade-done"),
    ("starts", in_flight_node("pod-restart-required"), "validation-required"),
    ("starts", in_flight_node("pod-restart-required"), ""),
    ("validates", in_flight_node("validation-required"), "upgrade-done"),
    ("validates", in_flight_node("validation-required"), "upgrade-failed"),
]


@pytest.mark.parametrize(("name", "node", "state"), OTHER, ids=lambda one: str(one)[:24])
def test_any_other_edit_is_reverted_once_and_reported(
    name: str, node: NodeView, state: str
) -> None:
    old_record = node.current_record
    assert old_record is not None
    touched = edited(node, state)
    step = handle_edits(touched)
    applied = write(step).applied
    assert applied.record == replace(old_record, edits=1)
    assert (applied.state, applied.lease) == (old_record.state, node.lease)
    assert applied.driver_label == node.driver_label
    assert applied.unschedulable is (True if node.cordoned else None)
    notice = note(step)
    assert (notice.kind, notice.field, notice.manager) == (NoticeKind.EDIT, "state", PERSON)
    assert (notice.before, notice.after) == (old_record.state, state)
    assert isinstance(step, Step)
    reverted = apply_step(touched, step)
    assert handle_edits(reverted) is None
    second_wait = wait_of(handle_edits(edited(reverted, state)))
    assert (second_wait.code, second_wait.until) == ("label-edited", None)
    assert PERSON in second_wait.who
    assert handle_edits(edited(reverted, old_record.state)) is None


def test_a_removed_label_has_no_known_manager() -> None:
    node = replace(edited(done(), ""), last_managers={})
    assert note(handle_edits(node)).manager not in ("", PERSON)


def test_a_stamp_keeps_the_edit_count() -> None:
    view = done(target=OLD)
    record = view.current_record
    assert record is not None
    step = step_at_rest(replace(view, record=replace(record, edits=1)))
    stamped = write(step).applied.record
    assert stamped is not None
    assert stamped.edits == 1


def test_a_retry_is_accepted_after_two_edits() -> None:
    view = failed()
    record = view.current_record
    assert record is not None
    edited_twice = replace(view, record=replace(record, edits=1))
    assert isinstance(handle_edits(edited(edited_twice, "upgrade-done")), Wait)
    step = handle_edits(edited(edited_twice, "upgrade-required"))
    assert write(step).applied.state == UpgradeState.UPGRADE_REQUIRED


@pytest.mark.parametrize("state", ["cordon-required", "upgrade-required"])
def test_a_live_foreign_operator_keeps_its_state_label(state: str) -> None:
    node = edited(done(), state, by="gpu-operator")
    outcome = wait_of(
        handle_edits(node, pool(), instant(foreign_operator="gpu-operator leads here"))
    )
    assert outcome.code == "foreign-operator"


def test_a_node_under_a_foreign_lease_is_left_alone() -> None:
    node = edited(done(lease=lease(owner=LeaseOwner.HUMAN)), "nonsense")
    assert handle_edits(node) is None


def test_a_label_of_the_same_value_is_no_edit() -> None:
    shared = {**done().field_managers, NodeField.STATE: (MANAGER, PERSON)}
    assert handle_edits(done(field_managers=shared)) is None


def test_edits_of_label_and_cordon_are_reverted_together() -> None:
    """The same write restores both."""
    node = edited(in_flight_node("wait-for-jobs-required"), "upgrade-done")
    owners = {
        field: names
        for field, names in node.field_managers.items()
        if field is not NodeField.CORDON
    }
    step = handle_edits(replace(node, cordoned=False, field_managers=owners))
    assert write(step).applied.unschedulable is True


def node_at_restart(operation: Operation) -> NodeView:
    view = in_flight_node("pod-restart-required", record={"operation": operation})
    return (
        view if operation is Operation.UPGRADE else replace(view, cordoned=False, field_managers={})
    )


def applied_by(view: NodeView) -> Any:
    step = step_of(handle_edits(view))
    (write,) = (action for action in step.actions if isinstance(action, WriteNode))
    return write.applied


def state_edited(view: NodeView, state: str, **record: object) -> NodeView:
    assert isinstance(view.record, NodeRecord)
    owners = {**view.field_managers, NodeField.STATE: (PERSON,)}
    return replace(view, state=state, field_managers=owners, record=replace(view.record, **record))


@pytest.mark.parametrize(("state", "was"), [("drain-required", "drain-required"), ("", "removed")])
def test_a_state_edit_notice_names_the_old_and_the_restored_state(state: str, was: str) -> None:
    step = step_of(handle_edits(state_edited(failed(), state)))
    (note,) = (action for action in step.actions if isinstance(action, Notice))
    assert was in note.message
    assert "upgrade-failed" in note.message


@pytest.mark.parametrize(
    ("state", "text"), [("drain-required", "drain-required"), ("", STATE_LABEL)]
)
def test_a_second_state_edit_names_the_edited_state(state: str, text: str) -> None:
    outcome = wait_of(handle_edits(state_edited(failed(), state, edits=1)))
    assert f"{STATE_LABEL} is {state}" in outcome.detail
    assert outcome.detail.endswith(" upgrade-failed")


def test_a_second_edit_names_every_label_to_restore() -> None:
    view = state_edited(node_at_restart(Operation.UPGRADE), "", edits=1)
    outcome = wait_of(handle_edits(label_edited(view, "")))
    for part in (STATE_LABEL, "pod-restart-required", DRIVER_LABEL, label_of(NEW)):
        assert part in outcome.detail
    assert outcome.who.startswith(f"the user of {PERSON}")


def test_a_restored_state_leaves_cordon_and_driver_label_alone() -> None:
    done_node = replace(node_at_restart(Operation.BRING_UP), driver_label=label_of(NEW))
    assert applied_by(state_edited(done_node, "")).unschedulable is None
    foreign_owner = {NodeField.DRIVER: (OPERATOR,)}
    in_flight = state_edited(in_flight_node("drain-required"), "")
    assert applied_by(replace(in_flight, field_managers=foreign_owner)).driver_label == label_of(
        OLD
    )
    required_node = state_edited(failed(driver_label="theirs"), "")
    assert applied_by(replace(required_node, field_managers=foreign_owner)).driver_label == ""
