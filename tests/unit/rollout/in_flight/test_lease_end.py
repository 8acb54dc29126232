"""How leases end: cordons that stay, releases and failures."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Quiesce, Swap
from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    MANAGER,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.reports import Refusal, RefusalCode
from libs.contracts.waits import WaitCode
from libs.rollout.cordons import cordon_at_release
from libs.rollout.decision import EvictPods, NodeOutcome, Wait, WriteNode, WriteSlot
from libs.rollout.in_flight.in_flight_node import recheck_at
from libs.rollout.views.machine import PodEviction, WorkloadPod
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OPERATOR,
    PERSON,
    command,
    component,
    driver_pod,
    evidence,
    granted,
    instant,
    label_of,
    pool,
    required,
    step_in_flight,
    with_record,
    without_component,
)
from tests.unit.rollout.in_flight.builders import QUIET
from tests.unit.rollout.in_flight.step_runner import (
    TOKEN,
    in_flight,
    run_step,
    silenced,
    with_results,
)
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


def outcome_of(view: NodeView, at: float = NOW, why: str = "", **visibility: Any) -> NodeOutcome:
    pool_view = granted(pool(), view)
    to_release = {view.uid: why} if why else {}
    pool_view = replace(
        pool_view, constraints=replace(pool_view.constraints, to_release=to_release)
    )
    return step_in_flight(view, pool_view, instant(at, **visibility))


# Cordons that stay.


@pytest.mark.parametrize(
    ("owners", "view", "record", "applied", "after"),
    [
        ((MANAGER,), {}, {}, None, False),
        ((MANAGER, PERSON), {}, {}, None, True),
        ((MANAGER, PERSON), {"initially_cordoned": True}, {}, None, True),
        ((MANAGER,), {"keep_cordoned": True}, {}, True, True),
        ((MANAGER, OPERATOR), {}, {"cordon_adopted": True}, False, False),
        ((OPERATOR,), {"initially_cordoned": True}, {"cordon_adopted": True}, None, True),
        ((MANAGER, OPERATOR), {"initially_cordoned": True}, {"cordon_adopted": True}, None, True),
    ],
    ids=["ours", "a person's too", "a person's before", "kept", "taken over", "annotated", "both"],
)
def test_which_cordon_stays_at_a_release(
    owners: tuple[str, ...],
    view: dict[str, Any],
    record: dict[str, Any],
    applied: bool | None,
    *,
    after: bool,
) -> None:
    node = proven()
    assert isinstance(node.record, NodeRecord)
    owned = {**node.field_managers, NodeField.CORDON: owners}
    stored = replace(node.record, **record)
    node = replace(node, field_managers=owned, record=stored, **view)
    step = step_of(outcome_of(node))
    write = node_write(step).applied
    assert (write.unschedulable, write.initially_cordoned) == (applied, False)
    assert run_step(node, step).cordoned == after
    kept = "as its label sluice.dev/keep-cordoned wants"
    who = f", {kept}" if node.keep_cordoned else " by a person"
    told = f"still cordoned{who}" if after else "back in service"
    assert step.because == f"validated; {told}"
    assert cordon_at_release(node, stored, proven=True) == applied


def test_a_node_that_nobody_cordoned_is_said_to_be_back_in_service() -> None:
    node = replace(proven(), cordoned=False)
    assert step_of(outcome_of(node)).because == "validated; back in service"


def test_a_foreign_cordon_is_not_made_ours() -> None:
    node = replace(proven(), keep_cordoned=True)
    node = replace(node, field_managers={**node.field_managers, NodeField.CORDON: (PERSON,)})
    assert node_write(outcome_of(node)).applied.unschedulable is None


@pytest.mark.parametrize(
    ("owners", "cleared"),
    [((MANAGER,), ()), ((MANAGER, OPERATOR), (INITIALLY_CORDONED_ANNOTATION,))],
)
def test_the_initial_cordon_note_goes_with_the_cordon(
    owners: tuple[str, ...], cleared: tuple[str, ...]
) -> None:
    node = replace(proven(), initially_cordoned=True)
    node = replace(
        node, field_managers={**node.field_managers, NodeField.INITIALLY_CORDONED: owners}
    )
    assert node_write(outcome_of(node)).applied.cleared == cleared


# Released unchanged.


def quieted(**changes: Any) -> NodeView:
    parts = {
        "driver": component(command(Idle(), order=(7, 2))),
        **{name: component(command(Quiesce(), order=(TOKEN, 1))) for name in QUIET},
    }
    shown: dict[str, Any] = {"components": parts, **changes}
    return in_flight(S.POD_DELETION_REQUIRED, record={"deadline": NOW + 300}, **shown)


def test_before_any_command_a_release_is_one_write() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    assert isinstance(view.record, NodeRecord)
    record = record_in(outcome_of(view, why="target-new is halted"))
    assert record == replace(
        view.record,
        state=S.UPGRADE_REQUIRED,
        operation=None,
        attempt=0,
        deadline=None,
        since=NOW,
        paused=False,
    )
    write = node_write(outcome_of(view, why="target-new is halted"))
    assert (write.applied.lease, write.applied.unschedulable) == (None, None)


def test_a_release_stops_evictions_and_wakes_the_components() -> None:
    view = quieted(evictions=(PodEviction(uid="u", since=NOW),))
    step = step_of(outcome_of(view, why="halted"))
    assert step.actions[0] == EvictPods(pods=())
    assert slot_writes(step) == dict.fromkeys(QUIET, Idle())
    assert not any(isinstance(action, WriteNode) for action in step.actions)


def test_a_release_waits_for_each_answer_or_silence() -> None:
    view = run_step(quieted(), step_of(outcome_of(quieted(), why="halted")))
    view = with_results(view, "plugin", "discovery", "validator")
    step = step_of(outcome_of(view, why="halted"))
    assert step.wait is not None
    assert step.wait.code == WaitCode.QUIESCE
    assert "telemetry" in step.wait.detail
    assert step.wake_at == step.wait.until == view.components["telemetry"].silent_at
    for ended in (with_results(view, "telemetry"), silenced(view, "telemetry")):
        assert record_in(outcome_of(ended, why="halted")).state == S.UPGRADE_REQUIRED


def test_a_release_that_began_is_finished_without_its_reason() -> None:
    view = run_step(quieted(), step_of(outcome_of(quieted(), why="halted")))
    record = record_in(outcome_of(with_results(view, *QUIET)))
    assert (record.state, record.back_off_seconds) == (S.UPGRADE_REQUIRED, 600.0)


def test_a_superseded_idle_is_sent_again() -> None:
    view = run_step(quieted(), step_of(outcome_of(quieted(), why="halted")))
    view = with_results(view, "plugin", "discovery", "validator")
    view = with_results(view, "telemetry", outcome="superseded")
    assert slot_writes(outcome_of(view, why="halted")) == {"telemetry": Idle()}


def test_a_release_waits_during_a_bus_outage() -> None:
    outage = {"bus_down_since": NOW - 5}
    assert wait_of(outcome_of(quieted(), why="halted", **outage)).code == WaitCode.BUS
    after = run_step(quieted(), step_of(outcome_of(quieted(), why="halted")))
    assert wait_of(outcome_of(after, why="halted", **outage)).code == WaitCode.BUS
    busy = replace(after, pods=(WorkloadPod(namespace="ml", name="job", uid="u", gpu=True),))
    told = wait_of(outcome_of(busy, why="halted", **outage))
    assert told.code == WaitCode.BUS, "no pod is evicted for an upgrade that is given up"
    untouched = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    assert record_in(outcome_of(untouched, why="halted", **outage)).state == S.UPGRADE_REQUIRED


def test_a_failed_node_stays_cordoned_when_its_retry_is_released() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"unproven": True}, initially_cordoned=True)
    write = node_write(outcome_of(view, why="halted")).applied
    assert (write.state, write.unschedulable) == (S.UPGRADE_REQUIRED, True)
    assert write.initially_cordoned
    assert write.record is not None
    assert write.record.unproven


def test_a_failed_node_is_uncordoned_when_it_is_proven() -> None:
    view = proven()
    view = with_record(view, unproven=True)
    write = node_write(outcome_of(view)).applied
    assert (write.state, write.unschedulable) == (S.UPGRADE_DONE, None)
    assert write.record is not None
    assert not write.record.unproven


def test_a_started_node_is_not_released() -> None:
    view = in_flight(S.POD_RESTART_REQUIRED, record={"deadline": NOW + 1800})
    assert wait_of(outcome_of(view, why="halted")).code == WaitCode.OLD_DRIVER


# Failures.


def broken(**changes: Any) -> NodeView:
    parts = {
        "driver": component(command(Idle(), order=(7, 2))),
        **{name: component(command(Quiesce(), order=(TOKEN, 1))) for name in QUIET},
    }
    pod = driver_pod(NEW, restarts=3)
    shown: dict[str, Any] = {"components": parts, "driver_pods": (pod,), **changes}
    return in_flight(S.POD_RESTART_REQUIRED, record={"deadline": NOW + 1800}, **shown)


CAUSE = record_in(outcome_of(broken())).cause


def test_a_failure_reaches_the_driver_agent_before_it_is_written() -> None:
    step = step_of(outcome_of(broken()))
    assert [type(action) for action in step.actions] == [WriteNode, WriteSlot]
    record = record_in(step)
    assert (record.state, record.cause, record.paused) == (S.POD_RESTART_REQUIRED, CAUSE, True)
    assert node_write(step).applied.lease is not None
    assert slot_writes(step) == {"driver": Idle()}


def test_a_failure_is_written_after_the_agent_answers_or_falls_silent() -> None:
    view = run_step(broken(), step_of(outcome_of(broken())))
    step = step_of(outcome_of(view))
    assert (step.actions, step.wake_at) == ((), view.components["driver"].silent_at)
    for ended in (with_results(view, "driver"), silenced(view, "driver")):
        written = step_of(outcome_of(ended))
        record = record_in(written)
        assert (record.state, record.cause) == (S.UPGRADE_FAILED, CAUSE)
        assert (record.paused, record.started, record.deadline) == (False, True, None)
        assert record.unproven
        assert node_write(written).applied.lease is None
        assert slot_writes(written) == dict.fromkeys(QUIET, Idle())


def test_a_failure_that_began_is_finished_though_the_driver_came_up() -> None:
    view = with_results(run_step(broken(), step_of(outcome_of(broken()))), "driver")
    view = replace(view, driver_pods=(driver_pod(NEW),))
    assert record_in(outcome_of(view)).state == S.UPGRADE_FAILED


def test_a_new_leader_finishes_a_failure_under_its_own_epoch() -> None:
    view = with_results(run_step(broken(), step_of(outcome_of(broken()))), "driver")
    step = step_of(outcome_of(view, epoch=4))
    assert {action.command.epoch for action in step.actions if isinstance(action, WriteSlot)} == {4}
    assert not any(isinstance(action, WriteNode) for action in step.actions)
    assert record_in(outcome_of(run_step(view, step), epoch=4)).epoch == 4


@pytest.mark.parametrize(
    ("refused", "unbegun"), [(None, False), ((TOKEN, 1), True), ((TOKEN - 1, 4), False)]
)
def test_a_change_that_the_driver_agent_has_read_is_unbegun_only_if_it_refused_that(
    refused: tuple[int, int] | None, *, unbegun: bool
) -> None:
    """What it has read it may have begun, though no report says so: that counts as harm."""
    refusal = refused and Refusal(
        code=RefusalCode.JOURNAL, message="", token=refused[0], op=refused[1]
    )
    driver = component(
        command(Swap(label=label_of(NEW)), order=(TOKEN, 1)),
        highest_order=Order(TOKEN, 1),
        refusal=refusal,
    )
    view = broken(components={"driver": driver}, driver_pods=())
    written = record_in(outcome_of(with_record(view, deadline=NOW - 1)))
    assert written.cause
    assert written.unbegun is unbegun


def test_a_written_cause_is_not_written_again() -> None:
    first = step_of(outcome_of(broken()))
    view = run_step(broken(), replace(first, actions=first.actions[:1]))
    assert [type(action) for action in step_of(outcome_of(view)).actions] == [WriteSlot]


def test_a_superseded_idle_does_not_confirm_a_failure() -> None:
    view = run_step(broken(), step_of(outcome_of(broken())))
    view = with_results(view, "driver", outcome="superseded")
    assert slot_writes(outcome_of(view)) == {"driver": Idle()}


def test_a_failure_waits_during_a_bus_outage() -> None:
    after = run_step(broken(), step_of(outcome_of(broken())))
    for view in (broken(), after):
        assert wait_of(outcome_of(view, bus_down_since=NOW - 5)).code == WaitCode.BUS


def test_a_failure_needs_no_answer_without_a_driver_agent() -> None:
    view = broken()
    record = record_in(outcome_of(without_component(view, "driver")))
    assert (record.state, record.cause) == (S.UPGRADE_FAILED, CAUSE)


@pytest.mark.parametrize(
    ("operation", "owners", "cordoned", "applied"),
    [
        (Operation.UPGRADE, (MANAGER,), True, True),
        (Operation.UPGRADE, (), False, True),
        (Operation.BRING_UP, (), False, True),
        (Operation.VALIDATE, (), False, None),
        (Operation.VALIDATE, (MANAGER,), True, True),
    ],
)
def test_which_failures_are_cordoned(
    operation: Operation, owners: tuple[str, ...], cordoned: bool, *, applied: bool | None
) -> None:
    view = in_flight(
        S.VALIDATION_REQUIRED,
        record={
            "operation": operation,
            "started": operation is not Operation.VALIDATE,
            "deadline": NOW - 1,
            "boot_id": "boot-1",
        },
        components={},
        cordoned=cordoned,
    )
    view = replace(view, field_managers={**view.field_managers, NodeField.CORDON: owners})
    write = node_write(outcome_of(view))
    assert (write.applied.state, write.applied.unschedulable) == (S.UPGRADE_FAILED, applied)


def unsettled(view: NodeView) -> NodeView:
    assert view.lease is not None
    new_lease = replace(view.lease, since=NOW - 0.5)  # type: ignore[type-var]
    return replace(view, lease=new_lease, cordon_taint=False)


def test_the_proven_label_is_sent_to_expected_components_only() -> None:
    view = proven()
    assert list(slot_writes(outcome_of(without_component(view, "driver")))) == ["validator"]


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
    changes = {"operation": Operation.VALIDATE, "started": False, "evidence": evidence()}
    view = with_record(validating(), **changes)
    view = replace(view, components={**view.components, "validator": component()})
    overdue = replace(view, record=replace(view.record, deadline=NOW - 1))  # type: ignore[type-var]
    record = failing_with(outcome_of(overdue), overdue)
    assert (record.state, record.evidence) == (S.UPGRADE_FAILED, None)


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


def test_a_wait_is_rechecked_only_after_it_began() -> None:
    wait = Wait(code=WaitCode.GATE, detail="", since=NOW)
    assert recheck_at(wait, NOW, instant()) is wait
    later = step_of(recheck_at(wait, NOW + 1, instant()))
    assert (later.wait, later.wake_at) == (wait, NOW + 1)


def test_the_taint_of_a_foreign_cordon_holds_nothing_up() -> None:
    """A node that is only validated, and a node that a person uncordoned."""
    validated = with_record(proven(), operation=Operation.VALIDATE)
    assert record_in(outcome_of(unsettled(validated))).state == S.UPGRADE_DONE
    bared = replace(unsettled(in_flight(S.WAIT_FOR_JOBS_REQUIRED)), cordoned=False)
    assert record_in(outcome_of(bared, why="halted")).state == S.UPGRADE_REQUIRED


def test_an_operation_that_needs_no_cordon_restores_none() -> None:
    view = with_record(validating(), operation=Operation.VALIDATE)
    view = replace(view, safe_load=True, cordoned=False)
    assert notices_in(outcome_of(view)) == []


@pytest.mark.parametrize(("writers", "manager"), [({}, ""), ({NodeField.CORDON: PERSON}, PERSON)])
def test_the_manager_that_removed_our_cordon_is_named(
    writers: dict[NodeField, str], manager: str
) -> None:
    view = replace(in_flight(S.WAIT_FOR_JOBS_REQUIRED, last_managers=writers), cordoned=False)
    (note,) = notices_in(outcome_of(view))
    assert manager in note.message
    assert not note.message.startswith(" ")
