"""Nodes that come from the GPU Operator, with its state and without a sign of us."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle
from libs.contracts.facts import LoadedDriver
from libs.contracts.node import MANAGER, REQUEST_ANNOTATION, LeaseOwner, NodeRequest, Operation
from libs.contracts.rollout import InFlight
from libs.policy.kinds.strategy import CordonedNodes, StrategySpec
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import (
    Candidate,
    NodeApplyConfiguration,
    Notice,
    NoticeKind,
    Step,
    Wait,
    WriteNode,
)
from libs.rollout.edits import handle_edits
from libs.rollout.in_flight import begin
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    BOOT,
    EPOCH,
    NEW,
    NOW,
    OPERATOR,
    PERSON,
    POOL,
    TOKEN,
    apply_step,
    command,
    component,
    idle_components,
    instant,
    label_of,
    lease,
    node,
    pool,
)

LOADED = LoadedDriver(version="570.1", loaded_at=NOW - 9999)


def came(state: str, **changes: Any) -> NodeView:
    owners: dict[NodeField, tuple[str, ...]] = {NodeField.STATE: (OPERATOR,)}
    if changes.get("cordoned"):
        owners[NodeField.CORDON] = (OPERATOR,)
    if changes.get("initially_cordoned"):
        owners[NodeField.INITIALLY_CORDONED] = (OPERATOR,)
    return replace(node(state=state, loaded=LOADED, field_managers=owners), **changes)


def adopted(made: NodeView) -> NodeApplyConfiguration:
    step = handle_edits(made, pool(), instant())
    assert isinstance(step, Step)
    write, note = step.actions
    assert isinstance(write, WriteNode)
    assert isinstance(note, Notice)
    assert (note.kind, note.manager) == (NoticeKind.EDIT, OPERATOR)
    assert (note.before, note.after) == (made.state, "upgrade-required")
    later = apply_step(made, step)
    assert later.cordoned is made.cordoned
    assert handle_edits(later, pool(), instant()) is None
    return write.applied


STATES: dict[str, tuple[bool, bool, bool]] = {
    # state: cordoned, cordoned before, so that the cordon ends with ours
    "upgrade-done": (False, False, False),
    "upgrade-required": (False, False, False),
    "cordon-required": (False, False, False),
    "wait-for-jobs-required": (True, False, True),
    "pod-deletion-required": (True, False, True),
    "drain-required": (True, False, True),
    "pod-restart-required": (True, False, True),
    "validation-required": (True, False, True),
    "uncordon-required": (True, False, True),
    "upgrade-failed": (True, False, True),
}


@pytest.mark.parametrize("state", STATES)
def test_it_is_adopted_in_whatever_state_it_came(state: str) -> None:
    cordoned, before, ends = STATES[state]
    applied = adopted(came(state, cordoned=cordoned, initially_cordoned=before))
    record = applied.record
    assert record is not None
    assert (record.state, record.pool, record.token) == ("upgrade-required", POOL, 0)
    assert (record.since, record.boot_id, record.epoch) == (NOW, BOOT, EPOCH)
    assert (record.evidence, record.started) == (None, False)
    assert record.cordon_adopted is ends
    assert applied.unschedulable is (True if ends else None)
    assert applied.lease is None


@pytest.mark.parametrize("state", STATES)
def test_a_cordon_that_was_there_before_stays_a_persons(state: str) -> None:
    applied = adopted(came(state, cordoned=True, initially_cordoned=True))
    assert applied.record is not None
    assert applied.record.cordon_adopted is False
    assert applied.initially_cordoned is True


@pytest.mark.parametrize("state", ["upgrade-done", "upgrade-required", "cordon-required"])
def test_a_cordon_where_that_operator_had_set_none_is_a_persons(state: str) -> None:
    applied = adopted(came(state, cordoned=True))
    assert applied.record is not None
    assert applied.record.cordon_adopted is False


def test_it_is_then_taken_over_like_any_machine_that_is_in_use() -> None:
    made = came("upgrade-done", components=idle_components())
    step = handle_edits(made, pool(), instant())
    assert isinstance(step, Step)
    outcome = step_at_rest(apply_step(made, step), pool(), instant())
    assert isinstance(outcome, Candidate)
    assert (outcome.operation, outcome.outside) == (Operation.TAKE_OVER, False)


def test_and_its_cordon_is_no_reason_to_skip_it() -> None:
    skips = replace(pool(), strategy=StrategySpec(cordoned_nodes=CordonedNodes.SKIP))
    outcomes: list[object] = []
    for before in (False, True):
        made = came(
            "drain-required",
            cordoned=True,
            initially_cordoned=before,
            components=idle_components(),
        )
        step = handle_edits(made, skips, instant())
        assert isinstance(step, Step)
        outcomes.append(step_at_rest(apply_step(made, step), skips, instant()))
    ours, persons = outcomes
    assert isinstance(ours, Candidate)
    assert isinstance(persons, Wait)
    assert persons.code == "skipped"


def test_its_token_is_above_what_agents_have_seen() -> None:
    seen = {"driver": component(command(Idle(), order=(9, 1)))}
    applied = adopted(came("upgrade-done", components=seen))
    assert applied.record is not None
    assert applied.record.token == 9


def test_the_request_to_adopt_it_is_answered_by_that() -> None:
    applied = adopted(came("upgrade-done", request=NodeRequest.ADOPT))
    assert applied.cleared == (REQUEST_ANNOTATION,)


LEFT: dict[str, tuple[NodeView, PoolView, Any]] = {
    "that operator is still at work": (
        came("upgrade-done"),
        pool(),
        instant(foreign_operator="its Lease is live"),
    ),
    "autoUpgrade was never on": (
        came("upgrade-done"),
        pool(standing={"may_mark_required": False}),
        instant(),
    ),
    "it is to have no driver": (came("upgrade-done", excluded=True), pool(), instant()),
    "no policy of ours selects it": (came("upgrade-done", pool=""), pool(), instant()),
    "the policy is gone": (came("upgrade-done"), replace(pool(), gone=True), instant()),
    "a person has it leased": (
        came("upgrade-done", lease=lease(owner=LeaseOwner.HUMAN)),
        pool(),
        instant(),
    ),
    "somebody's lease cannot be read": (
        came("upgrade-done", lease=MalformedAnnotation("{")),
        pool(),
        instant(),
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_until_then_it_is_left_alone(case: str) -> None:
    made, here, now = LEFT[case]
    assert handle_edits(made, here, now) is None


def test_while_that_operator_works_that_is_the_reason() -> None:
    outcome = step_at_rest(
        came("upgrade-done"), pool(), instant(foreign_operator="its Lease is live")
    )
    assert isinstance(outcome, Wait)
    assert outcome.code == "foreign-operator"


def test_a_note_of_somebody_in_place_of_a_record_does_not_hinder_it() -> None:
    made = came("upgrade-done", record=MalformedAnnotation("hello"))
    step = handle_edits(
        replace(made, field_managers={**made.field_managers, NodeField.RECORD: (PERSON,)}),
        pool(),
        instant(),
    )
    assert isinstance(step, Step)


def test_a_cordon_that_is_ours_all_the_same_is_not_dropped_by_it() -> None:
    made = came("upgrade-done", cordoned=True)
    step = handle_edits(
        replace(made, field_managers={**made.field_managers, NodeField.CORDON: (MANAGER,)}),
        pool(),
        instant(),
    )
    assert isinstance(step, Step)
    write = step.actions[0]
    assert isinstance(write, WriteNode)
    assert write.applied.unschedulable is True


def test_a_driver_label_of_ours_beside_it_is_a_sign_of_us() -> None:
    made = came("upgrade-done", driver_label=label_of(NEW))
    made = replace(made, field_managers={**made.field_managers, NodeField.DRIVER: (MANAGER,)})
    outcome = handle_edits(made, pool(), instant())
    assert isinstance(outcome, Wait)
    assert outcome.code == "record-lost"


def adoption(**changes: Any) -> NodeView:
    """Adopted in the middle of an upgrade that had cordoned it."""
    made = came("validation-required", cordoned=True, components=idle_components())
    step = handle_edits(made, pool(), instant())
    assert isinstance(step, Step)
    return replace(apply_step(made, step), **changes)


def upgrade(taken: NodeView) -> NodeApplyConfiguration:
    """The first write of its upgrade."""
    candidate = step_at_rest(taken, pool(), instant())
    assert isinstance(candidate, Candidate)
    entry = InFlight(node=taken.name, token=TOKEN + 1, target=NEW, since=NOW)
    standing = replace(pool().constraints, may_begin=frozenset({taken.uid}))
    step = begin(taken, candidate, entry, replace(pool(), constraints=standing), instant())
    assert isinstance(step, Step)
    return written_by(step)


def test_a_cordon_that_came_with_it_is_not_taken_for_a_persons_when_its_upgrade_begins() -> None:
    applied = upgrade(adoption())
    assert (applied.unschedulable, applied.initially_cordoned) == (True, False)
    assert applied.record is not None
    assert applied.record.cordon_adopted is True


def test_whoever_takes_it_away_or_sets_it_anew_has_it_from_then_on() -> None:
    taken = adoption()
    assert taken.is_owned(NodeField.CORDON)
    applied = upgrade(
        replace(taken, field_managers={**taken.field_managers, NodeField.CORDON: (PERSON,)})
    )
    assert (applied.unschedulable, applied.initially_cordoned) == (True, True)
    assert applied.record is not None
    assert applied.record.cordon_adopted is False


def test_where_it_is_to_have_no_driver_it_goes_with_what_we_wrote() -> None:
    step = step_at_rest(adoption(excluded=True), pool(), instant())
    assert isinstance(step, Step)
    applied = written_by(step)
    assert (applied.record, applied.unschedulable) == (None, False)


def written_by(step: Step) -> NodeApplyConfiguration:
    (write,) = (one for one in step.actions if isinstance(one, WriteNode))
    return write.applied
