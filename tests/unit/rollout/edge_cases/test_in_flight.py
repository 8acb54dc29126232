"""Nodes in flight at the edges: what a first write says, how a lease ends, what waits."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle
from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    MANAGER,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait
from libs.rollout.in_flight.in_flight_node import is_old_pod, recheck_at
from libs.rollout.node_writes import cordon_at_release
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OPERATOR,
    PERSON,
    command,
    component,
    done,
    driver_pod,
    evidence,
    instant,
    label_of,
    pool,
    record,
    required,
    with_record,
)
from tests.unit.rollout.in_flight import test_eviction as emptying
from tests.unit.rollout.in_flight.step_runner import TOKEN, in_flight, run_step, with_results
from tests.unit.rollout.in_flight.test_first_write import first_write
from tests.unit.rollout.in_flight.test_lease_end import broken, outcome_of
from tests.unit.rollout.in_flight.test_validation import failing_with, proven, validating
from tests.unit.rollout.outcomes import (
    node_write,
    notices_in,
    record_in,
    slot_writes,
    step_of,
    wait_of,
)

S = UpgradeState


def unsettled(view: NodeView) -> NodeView:
    assert view.lease is not None
    held = replace(view.lease, since=NOW - 0.5)  # type: ignore[type-var]
    return replace(view, lease=held, cordon_taint=False)


# The first write.


def test_a_grant_for_another_target_is_not_used() -> None:
    assert wait_of(first_write(required(), place={"target": ""})).detail == (
        "its place was given for target none, and it wants another now"
    )
    assert wait_of(first_write(required(), place={"target": "other"})).detail == (
        "its place was given for target other, and it wants another now"
    )


def test_only_an_operation_that_cordons_records_an_earlier_cordon() -> None:
    cordoned = replace(done(), cordoned=True, field_managers={NodeField.CORDON: (PERSON,)})
    for operation, said in ((Operation.UPGRADE, True), (Operation.VALIDATE, False)):
        applied = node_write(first_write(cordoned, operation=operation)).applied
        assert applied.initially_cordoned is said


@pytest.mark.parametrize("adopted", [True, False])
def test_a_pre_installed_node_is_released_with_its_adopted_cordon(*, adopted: bool) -> None:
    where = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    view = with_record(
        replace(done(excluded=True), driver_pods=(), cordoned=True), cordon_adopted=adopted
    )
    view = replace(
        view, field_managers={**view.field_managers, NodeField.CORDON: (MANAGER, OPERATOR)}
    )
    applied = node_write(first_write(view, where, Operation.REMOVE)).applied
    assert (applied.lease, applied.unschedulable) == (None, False if adopted else None)


def test_a_pre_installed_node_without_a_record_is_released() -> None:
    where = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    view = replace(done(excluded=True), driver_pods=(), record=None)
    applied = node_write(first_write(view, where, Operation.REMOVE)).applied
    assert (applied.lease, applied.unschedulable) == (None, None)


def test_a_driver_under_an_unknown_label_is_removed() -> None:
    where = replace(pool(targets=(NEW,)), method=InstallMethod.PRE_INSTALLED)
    view = replace(done(excluded=True), driver_pods=(), driver_label="nobody's")
    assert node_write(first_write(view, where, Operation.REMOVE)).applied.lease is not None


# How a lease ends.


def test_the_proven_label_is_sent_to_expected_components_only() -> None:
    view = proven()
    parts = {name: part for name, part in view.components.items() if name != "driver"}
    assert list(slot_writes(outcome_of(replace(view, components=parts)))) == ["validator"]


@pytest.mark.parametrize("why", ["halted", ""])
def test_a_lease_does_not_end_before_the_cordon_has_its_taint(why: str) -> None:
    view = unsettled(in_flight(S.WAIT_FOR_JOBS_REQUIRED) if why else proven())
    assert step_of(outcome_of(view, why=why)).wake_at == NOW + 0.5


def test_a_failure_waits_for_the_cordon_taint() -> None:
    step = step_of(outcome_of(unsettled(broken())))
    assert (step.actions, step.wake_at) == ((), NOW + 0.5)
    view = with_results(run_step(broken(), step_of(outcome_of(broken()))), "driver")
    step = step_of(outcome_of(unsettled(view)))
    assert (step.actions, step.wake_at) == ((), NOW + 0.5)


@pytest.mark.parametrize(
    ("unproven", "shown", "kept"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_the_initial_cordon_note_stays_while_the_node_is_broken(
    *, unproven: bool, shown: bool, kept: bool
) -> None:
    view = proven() if shown else in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    view = replace(with_record(view, unproven=unproven), initially_cordoned=True)
    owners = {**view.field_managers, NodeField.INITIALLY_CORDONED: (MANAGER, OPERATOR)}
    applied = node_write(
        outcome_of(replace(view, field_managers=owners), why="" if shown else "halted")
    ).applied
    assert applied.initially_cordoned is kept
    assert applied.cleared == (() if kept else (INITIALLY_CORDONED_ANNOTATION,))


def test_a_note_of_another_manager_is_left_alone() -> None:
    view = proven()
    owners = {**view.field_managers, NodeField.INITIALLY_CORDONED: (OPERATOR,)}
    assert node_write(outcome_of(replace(view, field_managers=owners))).applied.cleared == ()


def test_a_cordon_that_is_gone_is_not_removed() -> None:
    view = with_record(required(), cordon_adopted=True)
    view = replace(
        view, field_managers={**view.field_managers, NodeField.CORDON: (MANAGER,)}, cordoned=False
    )
    assert isinstance(view.record, NodeRecord)
    assert cordon_at_release(view, view.record, proven=True) is None


@pytest.mark.parametrize(("keep", "adopted"), [(False, False), (True, True)])
def test_an_adopted_cordon_stays_ours_only_while_it_is_kept(*, keep: bool, adopted: bool) -> None:
    view = with_record(in_flight(S.WAIT_FOR_JOBS_REQUIRED), cordon_adopted=True)
    record = record_in(outcome_of(replace(view, keep_cordoned=keep), why="halted"))
    assert record.cordon_adopted is adopted


def test_a_failed_validation_leaves_no_proof() -> None:
    said = {"operation": Operation.VALIDATE, "started": False, "evidence": evidence()}
    view = with_record(validating(), **said)
    view = replace(view, components={**view.components, "validator": component()})
    late = replace(view, record=replace(view.record, deadline=NOW - 1))  # type: ignore[type-var]
    record = failing_with(outcome_of(late), late)
    assert (record.state, record.evidence) == (S.UPGRADE_FAILED, None)


def test_a_failure_before_the_start_keeps_the_proof() -> None:
    view = emptying.evicting(S.POD_DELETION_REQUIRED, emptying.work(), record={"deadline": NOW - 1})
    assert isinstance(view.record, NodeRecord)
    record = record_in(emptying.outcome_of(view))
    assert (record.state, record.evidence) == (S.UPGRADE_FAILED, view.record.evidence)
    assert record.evidence is not None


def test_a_failure_after_the_start_drops_the_proof() -> None:
    view = with_record(broken(), evidence=evidence())
    assert failing_with(outcome_of(view), view).evidence is None


def test_a_failure_idles_the_components_that_do_something_else() -> None:
    view = with_results(run_step(broken(), step_of(outcome_of(broken()))), "driver")
    parts = {
        **view.components,
        "plugin": component(command(Idle(), order=(TOKEN, 1))),
        "telemetry": component(),
    }
    assert list(slot_writes(outcome_of(replace(view, components=parts)))) == [
        "discovery",
        "validator",
    ]


# Waits and writes.


def test_a_wait_is_rechecked_only_after_it_began() -> None:
    wait = Wait(code=WaitCode.GATE, detail="", since=NOW)
    assert recheck_at(wait, NOW, instant()) is wait
    later = step_of(recheck_at(wait, NOW + 1, instant()))
    assert (later.wait, later.wake_at) == (wait, NOW + 1)


def test_the_taint_of_a_foreign_cordon_holds_nothing_up() -> None:
    """One node that is only validated, and one that a person uncordoned."""
    validated = with_record(proven(), operation=Operation.VALIDATE)
    assert record_in(outcome_of(unsettled(validated))).state == S.UPGRADE_DONE
    bared = replace(unsettled(in_flight(S.WAIT_FOR_JOBS_REQUIRED)), cordoned=False)
    assert record_in(outcome_of(bared, why="halted")).state == S.UPGRADE_REQUIRED


def test_an_operation_that_needs_no_cordon_restores_none() -> None:
    view = with_record(validating(), operation=Operation.VALIDATE)
    view = replace(view, safe_load=True, cordoned=False)
    assert notices_in(outcome_of(view)) == []


@pytest.mark.parametrize(
    ("writers", "who"), [({}, "somebody"), ({NodeField.CORDON: PERSON}, PERSON)]
)
def test_the_manager_that_removed_our_cordon_is_named(
    writers: dict[NodeField, str], who: str
) -> None:
    view = replace(in_flight(S.WAIT_FOR_JOBS_REQUIRED, last_managers=writers), cordoned=False)
    (note,) = notices_in(outcome_of(view))
    assert note.message == f"{who} uncordoned the node in the middle of its upgrade: cordoned again"


@pytest.mark.parametrize("label", ["", label_of(NEW)])
def test_a_removal_counts_every_driver_pod_as_old(label: str) -> None:
    removal = record(operation=Operation.REMOVE, target="", label="")
    assert is_old_pod(removal, driver_pod(label=label))
    upgrade = record()
    assert is_old_pod(upgrade, driver_pod(label=label)) is (label != upgrade.label)
