"""Edits of the driver label (docs/states.md#people)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation, UpgradeState
from libs.rollout.decision import Notice, NoticeKind, Step, WriteNode
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    HOUR,
    NEW,
    NOW,
    OLD,
    PERSON,
    apply_step,
    done,
    driver_pod,
    evidence,
    failed,
    handle_edits,
    in_flight_node,
    instant,
    label_of,
    pool,
    required,
    step_at_rest,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, step_of, wait_of

MINUTES = 60.0


def edited(node: NodeView, label: str) -> NodeView:
    owners = {**node.field_managers, NodeField.DRIVER: (PERSON,)}
    if not label:
        del owners[NodeField.DRIVER]
    old_pods = tuple(
        replace(pod, deleting=True) if pod.label != label else pod for pod in node.driver_pods
    )
    return replace(
        node,
        driver_label=label,
        driver_pods=old_pods,
        field_managers=owners,
        last_managers={NodeField.DRIVER: PERSON},
    )


def write(step: object) -> WriteNode:
    assert isinstance(step, Step), step
    (action,) = (action for action in step.actions if isinstance(action, WriteNode))
    return action


def note(step: object) -> Notice:
    assert isinstance(step, Step)
    (action,) = (action for action in step.actions if isinstance(action, Notice))
    return action


def outcome_with_idle_slots(node: NodeView, pool: PoolView, *, at: float) -> object:
    alive = {name: replace(part, silent_at=at + HOUR) for name, part in node.components.items()}
    node = replace(node, components=alive)
    outcome = step_at_rest(node, pool, instant(at))
    if isinstance(outcome, Step) and not any(isinstance(a, WriteNode) for a in outcome.actions):
        outcome = step_at_rest(apply_step(node, outcome), pool, instant(at))
    return outcome


@pytest.mark.parametrize("label", ["", label_of(OLD), "nonsense"], ids=["stripped", "old", "odd"])
def test_an_edited_label_on_a_done_node_is_stamped_again_after_a_back_off(label: str) -> None:
    node = edited(done(), label)
    step = handle_edits(node)
    applied = write(step).applied
    record = applied.record
    assert record is not None
    assert (record.state, record.target, record.label) == ("upgrade-required", NEW, label_of(NEW))
    assert (record.back_off_until, record.back_off_seconds) == (NOW + 10 * MINUTES, 10 * MINUTES)
    assert record.evidence == evidence(NEW)
    assert applied.driver_label == ""
    notice = note(step)
    assert (notice.kind, notice.field, notice.manager) == (NoticeKind.EDIT, "driver", PERSON)
    assert (notice.before, notice.after) == (label_of(NEW), label)
    assert isinstance(step, Step)
    later = apply_step(node, step)
    assert later.driver_label == label
    assert handle_edits(later) is None
    waits = wait_of(outcome_with_idle_slots(later, pool(), at=NOW + 1))
    assert (waits.code, waits.until) == ("back-off", NOW + 10 * MINUTES)
    assert PERSON in waits.detail
    outcome = candidate_of(outcome_with_idle_slots(later, pool(), at=NOW + 10 * MINUTES))
    assert (outcome.operation, outcome.label) == (Operation.SAME_LABEL, label_of(NEW))


def test_a_new_target_ends_the_back_off() -> None:
    node = edited(done(target=OLD), "")
    step = step_of(handle_edits(node))
    outcome = candidate_of(outcome_with_idle_slots(apply_step(node, step), pool(), at=NOW + 1))
    assert (outcome.operation, outcome.label) == (Operation.UPGRADE, label_of(NEW))


def test_the_back_off_doubles_where_one_was_recorded() -> None:
    view = done()
    record = view.current_record
    assert record is not None
    node = edited(replace(view, record=replace(record, back_off_seconds=4 * HOUR)), "")
    next_record = write(handle_edits(node)).applied.record
    assert next_record is not None
    assert next_record.back_off_seconds == 6 * HOUR


def test_a_restored_label_is_validated_again() -> None:
    node = edited(done(), "")
    step = step_of(handle_edits(node))
    restored = replace(
        apply_step(node, step),
        driver_label=label_of(NEW),
        driver_pods=(driver_pod(uid="pod-b", started=NOW + 60),),
    )
    outcome = candidate_of(outcome_with_idle_slots(restored, pool(), at=NOW + 120))
    assert outcome.operation is Operation.VALIDATE


LEFT = {
    "a failed node": (edited(failed(), ""), pool(), instant()),
    "a stamped node": (edited(required(), ""), pool(), instant()),
    "its policy is gone": (edited(done(), ""), replace(pool(), gone=True), instant()),
    "it is to have none": (edited(done(excluded=True), ""), pool(), instant()),
    "another operator is at work": (edited(done(), ""), pool(), instant(foreign_operator="it is")),
    "it has not started": (edited(in_flight_node("drain-required"), ""), pool(), instant()),
    "it is merely validated": (
        edited(
            in_flight_node(
                "validation-required", record={"operation": Operation.VALIDATE, "started": False}
            ),
            "",
        ),
        pool(),
        instant(),
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_where_a_label_edit_changes_nothing(case: str) -> None:
    node, pool, now = LEFT[case]
    assert handle_edits(node, pool, now) is None


# In flight, from step 6 on.


@pytest.mark.parametrize("state", ["pod-restart-required", "validation-required"])
@pytest.mark.parametrize("label", ["", label_of(OLD)], ids=["stripped", "back to the old one"])
def test_a_label_edit_in_flight_restamps_and_voids_the_proof(state: str, label: str) -> None:
    node = edited(in_flight_node(state, record={"evidence": evidence(NEW)}), label)
    old_record = node.current_record
    assert old_record is not None
    step = handle_edits(node)
    applied = write(step).applied
    record = applied.record
    assert record is not None
    assert (record.state, record.evidence, record.edits) == (
        UpgradeState.POD_RESTART_REQUIRED,
        None,
        1,
    )
    assert (record.token, record.since, record.started) == (old_record.token, NOW, True)
    assert (applied.driver_label, applied.lease) == (label_of(NEW), node.lease)
    assert applied.unschedulable is True
    assert note(step).manager == PERSON
    assert isinstance(step, Step)
    reverted = apply_step(node, step)
    assert handle_edits(reverted) is None
    second_wait = wait_of(handle_edits(edited(reverted, label)))
    assert second_wait.code == "label-edited"
    assert PERSON in second_wait.who


def test_a_label_added_during_a_removal_is_removed_again() -> None:
    removing = in_flight_node(
        "pod-restart-required",
        record={"operation": Operation.REMOVE, "label": "", "target": ""},
        driver_label="",
    )
    assert handle_edits(removing) is None
    step = handle_edits(edited(removing, label_of(NEW)))
    assert write(step).applied.driver_label == ""


def step_after_label_edit(view: NodeView, label: str = "another") -> Step:
    return step_of(handle_edits(edited(view, label)))


def node_at_restart(operation: Operation) -> NodeView:
    view = in_flight_node("pod-restart-required", record={"operation": operation})
    return (
        view if operation is Operation.UPGRADE else replace(view, cordoned=False, field_managers={})
    )


def test_a_label_edit_does_not_bring_up_a_failed_node_without_a_lease() -> None:
    assert handle_edits(edited(failed(), label_of(OLD))) is None


def test_a_label_edit_before_the_start_is_overwritten_by_the_start() -> None:
    view = in_flight_node("pod-deletion-required")
    assert handle_edits(edited(view, "another")) is None


def test_a_label_edit_during_a_mere_validation_stamps_nothing() -> None:
    view = in_flight_node("validation-required", record={"operation": Operation.VALIDATE})
    view = with_record(view, started=False)
    assert handle_edits(edited(view, "another")) is None


def test_a_label_edit_in_flight_leaves_the_cordon_alone() -> None:
    for operation, cordon in ((Operation.UPGRADE, True), (Operation.BRING_UP, None)):
        step = step_after_label_edit(node_at_restart(operation))
        (write,) = (action for action in step.actions if isinstance(action, WriteNode))
        assert write.applied.unschedulable is cordon


def test_a_label_edit_notice_names_the_old_and_the_restored_label() -> None:
    for label, was in (("another", "another"), ("", "removed")):
        (note,) = (
            action
            for action in step_after_label_edit(done(), label).actions
            if isinstance(action, Notice)
        )
        assert was in note.message
        assert label_of(NEW) in note.message
    removal = in_flight_node(
        "pod-restart-required", record={"operation": Operation.REMOVE, "target": "", "label": ""}
    )
    (note,) = (
        action for action in step_after_label_edit(removal).actions if isinstance(action, Notice)
    )
    assert "target" not in note.message.partition("restored")[2]
