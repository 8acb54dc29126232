"""Adoption of nodes that come from the GPU Operator."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle
from libs.contracts.facts import LoadedDriver
from libs.contracts.node import MANAGER, REQUEST_ANNOTATION, LeaseOwner, NodeRequest, Operation
from libs.contracts.rollout import InFlight
from libs.policy.kinds.strategy import CordonedNodes, StrategySpec
from libs.rollout.decision import (
    Candidate,
    NodeApplyConfiguration,
    Notice,
    NoticeKind,
    Step,
    Wait,
    WriteNode,
)
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
    begin,
    command,
    component,
    handle_edits,
    idle_components,
    instant,
    label_of,
    lease,
    node,
    pool,
    step_at_rest,
)
from tests.unit.rollout.outcomes import candidate_of, step_of, wait_of

LOADED = LoadedDriver(version="570.1", loaded_at=NOW - 9999)


def foreign_node(state: str, **changes: Any) -> NodeView:
    owners: dict[NodeField, tuple[str, ...]] = {NodeField.STATE: (OPERATOR,)}
    if changes.get("cordoned"):
        owners[NodeField.CORDON] = (OPERATOR,)
    if changes.get("initially_cordoned"):
        owners[NodeField.INITIALLY_CORDONED] = (OPERATOR,)
    return replace(node(state=state, loaded=LOADED, field_managers=owners), **changes)


def adopted(view: NodeView) -> NodeApplyConfiguration:
    step = step_of(handle_edits(view))
    write, note = step.actions
    assert isinstance(write, WriteNode)
    assert isinstance(note, Notice)
    assert (note.kind, note.manager) == (NoticeKind.EDIT, OPERATOR)
    assert (note.before, note.after) == (view.state, "upgrade-required")
    after = apply_step(view, step)
    assert after.cordoned is view.cordoned
    assert handle_edits(after) is None
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
    "nonsense": (True, False, False),
}


@pytest.mark.parametrize("state", STATES)
def test_a_node_is_adopted_in_every_state(state: str) -> None:
    cordoned, before, ends = STATES[state]
    applied = adopted(foreign_node(state, cordoned=cordoned, initially_cordoned=before))
    record = applied.record
    assert record is not None
    assert (record.state, record.pool, record.token) == ("upgrade-required", POOL, 0)
    assert (record.since, record.boot_id, record.epoch) == (NOW, BOOT, EPOCH)
    assert (record.evidence, record.started) == (None, False)
    assert record.cordon_adopted is ends
    assert applied.unschedulable is (True if ends else None)
    assert applied.lease is None


@pytest.mark.parametrize("state", STATES)
def test_an_earlier_cordon_stays_foreign(state: str) -> None:
    applied = adopted(foreign_node(state, cordoned=True, initially_cordoned=True))
    assert applied.record is not None
    assert applied.record.cordon_adopted is False
    assert applied.initially_cordoned is True


@pytest.mark.parametrize("state", ["upgrade-done", "upgrade-required", "cordon-required"])
def test_a_cordon_in_a_state_without_one_stays_foreign(state: str) -> None:
    applied = adopted(foreign_node(state, cordoned=True))
    assert applied.record is not None
    assert applied.record.cordon_adopted is False


def test_an_adopted_node_is_taken_over_like_any_node_in_use() -> None:
    view = foreign_node("upgrade-done", components=idle_components())
    step = step_of(handle_edits(view))
    outcome = candidate_of(step_at_rest(apply_step(view, step)))
    assert (outcome.operation, outcome.outside) == (Operation.TAKE_OVER, False)


def test_an_adopted_cordon_does_not_make_a_node_skipped() -> None:
    skipping_pool = replace(pool(), strategy=StrategySpec(cordoned_nodes=CordonedNodes.SKIP))
    outcomes: list[object] = []
    for before in (False, True):
        view = foreign_node(
            "drain-required", cordoned=True, initially_cordoned=before, components=idle_components()
        )
        step = step_of(handle_edits(view, skipping_pool))
        outcomes.append(step_at_rest(apply_step(view, step), skipping_pool))
    with_our_cordon, with_foreign_cordon = outcomes
    assert isinstance(with_our_cordon, Candidate)
    assert isinstance(with_foreign_cordon, Wait)
    assert with_foreign_cordon.code == "skipped"


def test_an_adopted_node_continues_from_the_highest_reported_token() -> None:
    components = {"driver": component(command(Idle(), order=(9, 1)))}
    applied = adopted(foreign_node("upgrade-done", components=components))
    assert applied.record is not None
    assert applied.record.token == 9


def test_adoption_answers_the_adopt_request() -> None:
    applied = adopted(foreign_node("upgrade-done", request=NodeRequest.ADOPT))
    assert applied.cleared == (REQUEST_ANNOTATION,)


LEFT: dict[str, tuple[NodeView, PoolView, Any]] = {
    "that operator is still at work": (
        foreign_node("upgrade-done"),
        pool(),
        instant(foreign_operator="its Lease is live"),
    ),
    "autoUpgrade was never on": (
        foreign_node("upgrade-done"),
        pool(constraints={"may_mark_required": False}),
        instant(),
    ),
    "it is to have no driver": (foreign_node("upgrade-done", excluded=True), pool(), instant()),
    "no policy of ours selects it": (foreign_node("upgrade-done", pool=""), pool(), instant()),
    "the policy is gone": (foreign_node("upgrade-done"), replace(pool(), gone=True), instant()),
    "a person has it leased": (
        foreign_node("upgrade-done", lease=lease(owner=LeaseOwner.HUMAN)),
        pool(),
        instant(),
    ),
    "a foreign lease cannot be read": (
        foreign_node("upgrade-done", lease=MalformedAnnotation("{")),
        pool(),
        instant(),
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_adopted(case: str) -> None:
    result, pool_view, now = LEFT[case]
    assert handle_edits(result, pool_view, now) is None


def test_a_live_foreign_operator_is_the_reported_wait() -> None:
    outcome = wait_of(
        step_at_rest(
            foreign_node("upgrade-done"), pool(), instant(foreign_operator="its Lease is live")
        )
    )
    assert outcome.code == "foreign-operator"


def test_a_foreign_note_in_place_of_a_record_does_not_prevent_adoption() -> None:
    view = foreign_node("upgrade-done", record=MalformedAnnotation("hello"))
    assert isinstance(
        handle_edits(
            replace(view, field_managers={**view.field_managers, NodeField.RECORD: (PERSON,)})
        ),
        Step,
    )


def test_adoption_keeps_a_cordon_of_ours() -> None:
    view = foreign_node("upgrade-done", cordoned=True)
    step = step_of(
        handle_edits(
            replace(view, field_managers={**view.field_managers, NodeField.CORDON: (MANAGER,)})
        )
    )
    write = step.actions[0]
    assert isinstance(write, WriteNode)
    assert write.applied.unschedulable is True


def test_a_driver_label_of_ours_shows_a_lost_record() -> None:
    view = foreign_node("upgrade-done", driver_label=label_of(NEW))
    view = replace(view, field_managers={**view.field_managers, NodeField.DRIVER: (MANAGER,)})
    assert wait_of(handle_edits(view)).code == "record-lost"


def adopted_node(**changes: Any) -> NodeView:
    """Return a node adopted in the middle of an upgrade that had cordoned it."""
    view = foreign_node("validation-required", cordoned=True, components=idle_components())
    step = step_of(handle_edits(view))
    return replace(apply_step(view, step), **changes)


def first_write_of(taken: NodeView) -> NodeApplyConfiguration:
    candidate = candidate_of(step_at_rest(taken))
    entry = InFlight(node=taken.name, token=TOKEN + 1, target=NEW, since=NOW)
    constraints = replace(pool().constraints, may_begin=frozenset({taken.uid}))
    step = step_of(
        begin(taken, candidate, entry, replace(pool(), constraints=constraints), instant())
    )
    return node_write_of(step)


def test_an_adopted_cordon_is_not_an_earlier_one_at_the_start() -> None:
    applied = first_write_of(adopted_node())
    assert (applied.unschedulable, applied.initially_cordoned) == (True, False)
    assert applied.record is not None
    assert applied.record.cordon_adopted is True


def test_a_cordon_set_anew_belongs_to_its_new_manager() -> None:
    adopted_view = adopted_node()
    assert adopted_view.is_owned(NodeField.CORDON)
    applied = first_write_of(
        replace(
            adopted_view,
            field_managers={**adopted_view.field_managers, NodeField.CORDON: (PERSON,)},
        )
    )
    assert (applied.unschedulable, applied.initially_cordoned) == (True, True)
    assert applied.record is not None
    assert applied.record.cordon_adopted is False


def test_an_adopted_cordon_is_removed_with_our_fields() -> None:
    applied = node_write_of(step_of(step_at_rest(adopted_node(excluded=True))))
    assert (applied.record, applied.unschedulable) == (None, False)


def node_write_of(step: Step) -> NodeApplyConfiguration:
    (write,) = (action for action in step.actions if isinstance(action, WriteNode))
    return write.applied


def test_a_node_adopted_uncordoned_has_no_adopted_cordon() -> None:
    record = adopted(foreign_node("drain-required")).record
    assert record is not None
    assert record.cordon_adopted is False
