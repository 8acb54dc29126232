"""Somebody edited or stripped the driver label (docs/states.md#people)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation, UpgradeState
from libs.rollout.decision import Candidate, Note, Step, Told, Wait, WriteNode
from libs.rollout.edits import edits
from libs.rollout.rest import rest
from libs.rollout.views.node import Field, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import readable
from tests.unit.rollout.building import (
    HOUR,
    NEW,
    NOW,
    OLD,
    PERSON,
    after,
    done,
    driver_pod,
    evidence,
    failed,
    instant,
    label_of,
    pool,
    required,
    under_way,
)

MINUTES = 60.0


def edited(node: NodeView, label: str) -> NodeView:
    owners = {**node.owners, Field.DRIVER: (PERSON,)}
    if not label:
        del owners[Field.DRIVER]
    leaving = tuple(
        replace(pod, deleting=True) if pod.label != label else pod for pod in node.driver_pods
    )
    return replace(
        node,
        driver_label=label,
        driver_pods=leaving,
        owners=owners,
        writers={Field.DRIVER: PERSON},
    )


def write(step: object) -> WriteNode:
    assert isinstance(step, Step), step
    (action,) = (action for action in step.actions if isinstance(action, WriteNode))
    return action


def note(step: object) -> Note:
    assert isinstance(step, Step)
    (action,) = (action for action in step.actions if isinstance(action, Note))
    return action


def settled(node: NodeView, pool: PoolView, *, at: float) -> object:
    """What is said of the node once its slots are quiet."""
    alive = {name: replace(one, silent_at=at + HOUR) for name, one in node.components.items()}
    node = replace(node, components=alive)
    outcome = rest(node, pool, instant(at))
    if isinstance(outcome, Step) and not any(isinstance(a, WriteNode) for a in outcome.actions):
        outcome = rest(after(node, outcome), pool, instant(at))
    return outcome


@pytest.mark.parametrize("label", ["", label_of(OLD), "nonsense"], ids=["stripped", "old", "odd"])
def test_on_a_done_node_it_is_stamped_again_after_a_back_off(label: str) -> None:
    node = edited(done(), label)
    step = edits(node, pool(), instant())
    applied = write(step).applied
    made = applied.record
    assert made is not None
    assert (made.state, made.target, made.label) == ("upgrade-required", NEW, label_of(NEW))
    assert (made.back_off_until, made.back_off_seconds) == (NOW + 10 * MINUTES, 10 * MINUTES)
    assert made.evidence == evidence(NEW)
    assert applied.driver_label == ""
    told = note(step)
    assert (told.told, told.field, told.manager) == (Told.EDIT, "driver", PERSON)
    assert (told.before, told.after) == (label_of(NEW), label)
    assert isinstance(step, Step)
    later = after(node, step)
    assert later.driver_label == label
    assert edits(later, pool(), instant()) is None
    waits = settled(later, pool(), at=NOW + 1)
    assert isinstance(waits, Wait)
    assert (waits.code, waits.until) == ("back-off", NOW + 10 * MINUTES)
    assert PERSON in waits.detail
    outcome = settled(later, pool(), at=NOW + 10 * MINUTES)
    assert isinstance(outcome, Candidate)
    assert (outcome.operation, outcome.label) == (Operation.SAME_LABEL, label_of(NEW))


def test_a_new_target_ends_that_back_off() -> None:
    node = edited(done(target=OLD), "")
    step = edits(node, pool(), instant())
    assert isinstance(step, Step)
    outcome = settled(after(node, step), pool(), at=NOW + 1)
    assert isinstance(outcome, Candidate)
    assert (outcome.operation, outcome.label) == (Operation.UPGRADE, label_of(NEW))


def test_it_doubles_where_it_was_not_over() -> None:
    made = done()
    record = readable(made)
    assert record is not None
    node = edited(replace(made, record=replace(record, back_off_seconds=4 * HOUR)), "")
    again = write(edits(node, pool(), instant())).applied.record
    assert again is not None
    assert again.back_off_seconds == 6 * HOUR


def test_who_puts_it_back_himself_has_it_validated_again() -> None:
    node = edited(done(), "")
    step = edits(node, pool(), instant())
    assert isinstance(step, Step)
    back = replace(
        after(node, step),
        driver_label=label_of(NEW),
        driver_pods=(driver_pod(uid="pod-b", started=NOW + 60),),
    )
    outcome = settled(back, pool(), at=NOW + 120)
    assert isinstance(outcome, Candidate)
    assert outcome.operation is Operation.VALIDATE


LEFT = {
    "a failed node": (edited(failed(), ""), pool(), instant()),
    "a stamped node": (edited(required(), ""), pool(), instant()),
    "its policy is gone": (edited(done(), ""), replace(pool(), gone=True), instant()),
    "it is to have none": (edited(done(excluded=True), ""), pool(), instant()),
    "another operator is at work": (edited(done(), ""), pool(), instant(foreign_operator="it is")),
    "it has not started": (edited(under_way("drain-required"), ""), pool(), instant()),
    "it is merely validated": (
        edited(
            under_way(
                "validation-required", record={"operation": Operation.VALIDATE, "started": False}
            ),
            "",
        ),
        pool(),
        instant(),
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_elsewhere_the_edit_itself_changes_nothing(case: str) -> None:
    node, pool, now = LEFT[case]
    assert edits(node, pool, now) is None


# In flight, from step 6 on.


@pytest.mark.parametrize("state", ["pod-restart-required", "validation-required"])
@pytest.mark.parametrize("label", ["", label_of(OLD)], ids=["stripped", "back to the old one"])
def test_in_flight_it_is_stamped_again_and_all_proof_is_void(state: str, label: str) -> None:
    node = edited(under_way(state, record={"evidence": evidence(NEW)}), label)
    was = readable(node)
    assert was is not None
    step = edits(node, pool(), instant())
    applied = write(step).applied
    made = applied.record
    assert made is not None
    assert (made.state, made.evidence, made.edits) == (
        UpgradeState.POD_RESTART_REQUIRED,
        None,
        1,
    )
    assert (made.token, made.since, made.started) == (was.token, NOW, True)
    assert (applied.driver_label, applied.lease) == (label_of(NEW), node.lease)
    assert applied.unschedulable is True
    assert note(step).manager == PERSON
    assert isinstance(step, Step)
    back = after(node, step)
    assert edits(back, pool(), instant()) is None
    again = edits(edited(back, label), pool(), instant())
    assert isinstance(again, Wait)
    assert again.code == "label-edited"
    assert PERSON in again.who


def test_a_removal_under_way_has_its_label_taken_away_again() -> None:
    removing = under_way(
        "pod-restart-required",
        record={"operation": Operation.REMOVE, "label": "", "target": ""},
        driver_label="",
    )
    assert edits(removing, pool(), instant()) is None
    step = edits(edited(removing, label_of(NEW)), pool(), instant())
    assert write(step).applied.driver_label == ""
