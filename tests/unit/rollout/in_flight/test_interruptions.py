"""Halts, edited policies, reboots, freezes and bus outages during a lease."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Quiesce, Swap, Validate
from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord, Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeOutcome
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    VARIANT,
    driver_pod,
    evidence,
    granted,
    instant,
    label_of,
    pool,
    slot_in,
    step_in_flight,
    with_build,
    with_record,
    without_component,
    without_driver,
)
from tests.unit.rollout.in_flight.builders import END, QUIET, WAITS_AT_GATE, restarting, swapping
from tests.unit.rollout.in_flight.step_runner import (
    TOKEN,
    at_phase,
    in_flight,
    proof,
    run_step,
    silenced,
    with_beats,
    with_results,
)
from tests.unit.rollout.in_flight.test_driver_restart_ends import removal
from tests.unit.rollout.in_flight.test_lease_end import outcome_of as ends
from tests.unit.rollout.in_flight.test_lease_end import quieted
from tests.unit.rollout.in_flight.test_validation import ready, validating
from tests.unit.rollout.outcomes import node_write, record_in, slot_writes, step_of, wait_of

S = UpgradeState
THIRD = "target-third"
KERNEL_6_9 = "ubuntu24.04-6.9"


def wide_pool() -> PoolView:
    return pool(targets=(OLD, NEW, THIRD), variants=(VARIANT, KERNEL_6_9))


def outcome_of(
    view: NodeView, pool_view: PoolView | None = None, at: float = NOW, **visibility: Any
) -> NodeOutcome:
    return step_in_flight(view, pool_view or granted(wide_pool(), view), instant(at, **visibility))


# Before the start: docs/states.md#v-edited, and #v-halt.


@pytest.mark.parametrize(
    "state", [S.WAIT_FOR_JOBS_REQUIRED, S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED]
)
def test_before_the_start_a_halt_releases_unchanged(state: UpgradeState) -> None:
    view = in_flight(state)
    pool_view = granted(wide_pool(), view)
    constraints = replace(pool_view.constraints, to_release={view.uid: "halted: 3 failed"})
    step = outcome_of(view, replace(pool_view, constraints=constraints))
    record = record_in(step)
    assert (record.state, record.back_off_until) == (S.UPGRADE_REQUIRED, 0.0)
    assert record.evidence == evidence(OLD)
    assert step_of(step).because.endswith("halted: 3 failed")


def test_before_the_start_a_node_changes_to_a_granted_new_target() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"back_off_seconds": 600.0, "attempt": 2})
    pool_view = granted(wide_pool(), view, target=THIRD, outside=True)
    step = outcome_of(view, pool_view)
    assert isinstance(view.record, NodeRecord)
    assert record_in(step) == replace(
        view.record,
        target=THIRD,
        label=label_of(THIRD),
        outside=True,
        attempt=1,
        back_off_seconds=0.0,
    )
    write = node_write(step).applied
    assert (write.driver_label, write.unschedulable) == (label_of(OLD), True)
    after = run_step(view, step_of(step))
    assert record_in(outcome_of(after, granted(wide_pool(), after, target=THIRD))).target == THIRD


def test_a_node_already_on_the_wanted_target_is_released() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    record = record_in(outcome_of(view, granted(wide_pool(), view, target=OLD)))
    assert (record.state, record.back_off_until) == (S.UPGRADE_REQUIRED, 0.0)


@pytest.mark.parametrize("readiness", [Readiness.MISSING, None])
def test_a_new_target_without_a_build_releases_the_node(readiness: Readiness | None) -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    pool_view = granted(wide_pool(), view, target=THIRD)
    if readiness is not None:
        pool_view = with_build(pool_view, THIRD, readiness=readiness)
    else:
        pool_view = replace(pool_view, builds={NEW: pool_view.builds[NEW]})
    assert record_in(outcome_of(view, pool_view)).state == S.UPGRADE_REQUIRED


@pytest.mark.parametrize("target", [OLD, "target-unknown"])
def test_a_release_without_a_target_to_install_has_no_back_off(target: str) -> None:
    view = in_flight(S.POD_DELETION_REQUIRED)
    view = with_results(run_step(view, step_of(outcome_of(view))), *QUIET)
    pool_view = granted(wide_pool(), view, target=target)
    step = step_of(outcome_of(view, pool_view))
    assert slot_writes(step) == dict.fromkeys(QUIET, Idle())
    record = record_in(outcome_of(with_results(run_step(view, step), *QUIET), pool_view))
    assert (record.state, record.back_off_until) == (S.UPGRADE_REQUIRED, 0.0)


def test_an_unproven_running_target_is_no_reason_to_stop() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"evidence": None})
    assert record_in(outcome_of(view, granted(wide_pool(), view, target=OLD))).target == OLD


def test_before_the_start_a_new_kernel_changes_the_label() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, variant=KERNEL_6_9, boot_id="boot-2")
    record = record_in(outcome_of(view))
    assert (record.target, record.label) == (NEW, label_of(NEW, KERNEL_6_9))
    assert record.state == S.WAIT_FOR_JOBS_REQUIRED


def test_after_the_start_an_edited_policy_changes_nothing() -> None:
    view = swapping(WAITS_AT_GATE)
    wait = wait_of(outcome_of(view, granted(wide_pool(), view, target=THIRD)))
    assert wait.code == WaitCode.UNLOAD


def test_a_removal_that_is_no_longer_wanted_is_released() -> None:
    record = {"operation": Operation.REMOVE, "target": "", "label": ""}
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record=record, excluded=True)
    pool_view = granted(wide_pool(), view, target="")
    assert record_in(outcome_of(view, pool_view)).state == S.POD_DELETION_REQUIRED
    assert (
        record_in(outcome_of(replace(view, excluded=False), pool_view)).state == S.UPGRADE_REQUIRED
    )
    moved = replace(view, excluded=False, pool="another")
    assert record_in(outcome_of(moved, pool_view)).state == S.POD_DELETION_REQUIRED
    deleted_pool = replace(pool_view, gone=True)
    assert (
        record_in(outcome_of(replace(view, excluded=False), deleted_pool)).state
        == S.POD_DELETION_REQUIRED
    )


def test_a_node_that_moved_to_another_pool_finishes_in_its_own() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pool="another")
    record = record_in(outcome_of(view, replace(granted(wide_pool(), view), gone=True)))
    assert record.state == S.POD_DELETION_REQUIRED


# What a reboot changes (docs/states.md#v-reboot).


def rebooted(view: NodeView, **changes: Any) -> NodeView:
    pods = tuple(replace(pod, ready=False, started=None) for pod in view.driver_pods)
    view = replace(without_driver(view), driver_pods=pods, boot_id="boot-2", evidence=None)
    return replace(view, **changes)


def test_before_the_start_a_reboot_changes_nothing() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"deadline": NOW + 240})
    record = record_in(outcome_of(rebooted(view)))
    assert (record.state, record.deadline) == (S.POD_DELETION_REQUIRED, NOW + 300)


def test_after_the_start_a_reboot_renews_limit_and_swap() -> None:
    view = rebooted(swapping(WAITS_AT_GATE))
    step = step_of(outcome_of(view))
    record = record_in(step)
    assert (record.state, record.boot_id) == (S.POD_RESTART_REQUIRED, "boot-2")
    assert (record.since, record.deadline, record.deadline_renewed) == (NOW, NOW + 1800, True)
    after = run_step(view, step)
    next_step = step_of(outcome_of(after))
    assert isinstance(slot_writes(next_step)["driver"], Swap)
    slot = slot_in(run_step(after, next_step), "driver")
    assert (slot.order, slot.boot_id) == (Order(TOKEN, 2), "boot-2")


def test_a_second_reboot_renews_the_swap_but_not_the_limit() -> None:
    view = restarting(WAITS_AT_GATE, record={"deadline_renewed": True, "deadline": END})
    view = rebooted(view)
    assert isinstance(slot_writes(outcome_of(view))["driver"], Swap)


def test_a_reboot_during_validation_restarts_the_driver() -> None:
    view = rebooted(validating())
    record = record_in(outcome_of(view))
    assert (record.state, record.evidence) == (S.POD_RESTART_REQUIRED, None)
    assert (record.deadline, record.deadline_renewed) == (NOW + 1800, True)
    assert record.old_pod_uid == f"pod-{OLD}-node-1"


def test_repeated_reboots_during_validation_come_to_an_end() -> None:
    view, time, deadlines = validating(), NOW, []
    for number in range(2, 6):
        view = rebooted(with_beats(view, time), boot_id=f"boot-{number}")
        view = run_step(view, step_of(outcome_of(view, at=time)))
        assert isinstance(view.record, NodeRecord)
        deadlines.append(view.record.deadline)
        time += 100
        if time >= (view.record.deadline or 0):
            break
        view = run_step(
            with_beats(view, time), step_of(outcome_of(with_beats(view, time), at=time))
        )
        view = with_results(view, "driver")
        pod = driver_pod(NEW, started=time)
        loaded = validating().loaded
        view = replace(view, driver_pods=(pod,), loaded=loaded)
        view = run_step(view, step_of(outcome_of(view, at=time)))
        assert view.state == S.VALIDATION_REQUIRED
        time += 100
    first_deadline = NOW + 1800
    assert deadlines[0] == first_deadline
    assert deadlines[1:] == [NOW + 100 + 600] * len(deadlines[1:])
    assert len(deadlines) > 2


def test_a_mere_validation_goes_on_in_the_new_boot() -> None:
    view = validating({"operation": Operation.VALIDATE, "started": False})
    view = replace(view, boot_id="boot-2")
    step = step_of(outcome_of(view))
    record = record_in(step)
    assert (record.state, record.deadline, record.boot_id) == (
        S.VALIDATION_REQUIRED,
        NOW + 600,
        "boot-2",
    )
    repeated = slot_writes(outcome_of(run_step(view, step)))
    assert isinstance(repeated["validator"], Validate)


def test_after_the_start_a_new_kernel_changes_the_label_under_the_same_lease() -> None:
    view = rebooted(swapping(WAITS_AT_GATE), variant=KERNEL_6_9)
    step = outcome_of(view)
    label = label_of(NEW, KERNEL_6_9)
    assert (node_write(step).applied.driver_label, record_in(step).label) == (label, label)
    after = run_step(view, step_of(step))
    assert wait_of(outcome_of(after)).code == WaitCode.OLD_DRIVER
    rebooted_again = replace(after, boot_id="boot-3", variant=VARIANT)
    assert record_in(outcome_of(rebooted_again)).label == label_of(NEW)
    assert record_in(outcome_of(rebooted_again)).deadline == NOW + 1800


def test_components_are_quiesced_again_after_a_return_to_the_driver_restart() -> None:
    view = ready()
    assert isinstance(view.record, NodeRecord)
    record = replace(view.record, state=S.POD_RESTART_REQUIRED, since=NOW, deadline=NOW + 1800)
    view = replace(view, state=S.POD_RESTART_REQUIRED, record=replace(record, paused=True))
    resumed = {
        name: replace(part, slot=replace(part.slot, kind="idle", op=2), result=None)
        if part.slot is not None and name != "driver"
        else part
        for name, part in view.components.items()
    }
    outcome = outcome_of(replace(view, components=resumed))
    assert slot_writes(outcome) == dict.fromkeys(QUIET, Quiesce())


# Freezes and outages: docs/states.md#limits, and #freshness.


def test_a_freeze_moves_every_limit() -> None:
    view = in_flight(
        S.WAIT_FOR_JOBS_REQUIRED, pods=None, record={"deadline": NOW + 10, "frozen_seconds": 5.0}
    )
    pool_view = granted(wide_pool(), view)
    pool_view = replace(pool_view, constraints=replace(pool_view.constraints, frozen_seconds=105.0))
    assert wait_of(outcome_of(view, pool_view, at=NOW + 50)).until == NOW + 110
    assert record_in(outcome_of(view, pool_view, at=NOW + 110)).frozen_seconds == 105.0


@pytest.mark.parametrize(
    ("outages", "until"),
    [
        ((), END),
        (((NOW - 50, NOW - 20),), END + 30),
        (((NOW - 500, NOW - 20),), END + 40),
        (((NOW - 500, NOW - 100),), END),
        (((NOW - 50, NOW - 40), (NOW - 30, NOW - 25)), END + 15),
    ],
)
def test_a_bus_outage_moves_the_limits_that_a_report_would_end(
    outages: tuple[tuple[float, float], ...], until: float
) -> None:
    view = at_phase(swapping(WAITS_AT_GATE), "driver", "driver-start")
    assert wait_of(outcome_of(view, bus_outages=outages)).until == until


def test_a_bus_outage_moves_no_limit_that_kubernetes_would_end() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=None, record={"deadline": NOW + 10})
    assert wait_of(outcome_of(view, bus_outages=((NOW - 50, NOW),))).until == NOW + 10
    assert wait_of(outcome_of(view, bus_down_since=NOW - 50)).until == NOW + 10


def test_a_bus_outage_moves_slot_deadlines_by_the_time_after_them() -> None:
    view = at_phase(swapping(WAITS_AT_GATE), "driver", "unload")
    outages = ((NOW - 50, NOW + 20),)
    assert wait_of(outcome_of(view, at=NOW + 30, bus_outages=outages)).until == NOW + 120 + 20


@pytest.mark.parametrize("view", [swapping(WAITS_AT_GATE), validating(), restarting(WAITS_AT_GATE)])
def test_no_limit_passes_during_a_bus_outage(view: NodeView) -> None:
    wait = wait_of(outcome_of(view, at=NOW + 1e6, bus_down_since=NOW - 1))
    assert (wait.code, wait.until) == (WaitCode.BUS, None)


def test_a_received_result_is_used_during_a_bus_outage() -> None:
    view = with_results(swapping(driver_pod(NEW)), "driver")
    assert record_in(outcome_of(view, bus_down_since=NOW - 1)).state == S.VALIDATION_REQUIRED


# Inconsistent nodes.


def test_a_lease_without_a_record_is_left_alone() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    for lost_record in (None, replace(proof(validating(), NOW), record=None).record):
        assert wait_of(outcome_of(replace(view, record=lost_record))).code == WaitCode.RECORD_LOST
    done = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"state": S.UPGRADE_DONE})
    assert wait_of(outcome_of(done)).code == WaitCode.RECORD_LOST
    human_lease = NodeLease(node_uid=view.uid, owner=LeaseOwner.HUMAN, token=TOKEN, since=NOW)
    assert wait_of(outcome_of(replace(view, lease=human_lease))).code == WaitCode.RECORD_LOST


def test_idle_slots_of_an_earlier_lease_do_not_count() -> None:
    view = in_flight(S.POD_DELETION_REQUIRED)
    assert all(
        part.slot is not None and isinstance(part.slot.open(), Idle)
        for part in view.components.values()
    )
    assert set(slot_writes(outcome_of(view)).values()) == {Quiesce()}


POD = WorkloadPod(namespace="ml", name="train", uid="uid-train", gpu=True)


def released_node(**record: Any) -> NodeView:
    view = with_record(quieted(), **record)
    return with_results(run_step(view, step_of(ends(view, why="halted"))), *QUIET)


def test_a_removal_continues_where_no_driver_can_stay() -> None:
    record = {"operation": Operation.REMOVE, "target": "", "label": ""}
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record=record)
    pool_view = granted(wide_pool(), view, target="")
    assert record_in(outcome_of(view, pool_view)).state == S.UPGRADE_REQUIRED
    assert (
        record_in(outcome_of(view, replace(pool_view, builds={}))).state == S.POD_DELETION_REQUIRED
    )
    pre_installed_pool = replace(pool_view, method=InstallMethod.PRE_INSTALLED)
    assert record_in(outcome_of(view, pre_installed_pool)).state == S.POD_DELETION_REQUIRED


def test_a_node_of_unknown_variant_is_not_released() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, variant="")
    record = record_in(outcome_of(view, granted(wide_pool(), view, target=THIRD)))
    assert record.state == S.POD_DELETION_REQUIRED


def test_a_missing_own_target_is_checked_at_the_start_only() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    pool_view = replace(granted(wide_pool(), view), builds={})
    assert record_in(outcome_of(view, pool_view)).state == S.POD_DELETION_REQUIRED


def test_a_proof_for_another_label_is_no_reason_to_stop() -> None:
    proof = evidence(THIRD)
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"evidence": proof})
    record = record_in(outcome_of(view, granted(wide_pool(), view, target=OLD)))
    assert (record.state, record.target) == (S.WAIT_FOR_JOBS_REQUIRED, OLD)


def test_a_released_reinstall_of_the_same_label_is_not_done() -> None:
    view = released_node(operation=Operation.SAME_LABEL, target=OLD, label=label_of(OLD))
    record = record_in(outcome_of(view, granted(wide_pool(), view, target=OLD)))
    assert (record.state, record.back_off_seconds) == (S.UPGRADE_REQUIRED, 600.0)


QUIESCE = "quiesce"
LATE = {"deadline": NOW - 1}


@pytest.mark.parametrize(
    ("record", "view", "silent_agents", "cause"),
    [
        ({}, {}, (), QUIESCE),
        (LATE, {}, (), QUIESCE),
        ({"state": S.WAIT_FOR_JOBS_REQUIRED}, {}, (), QUIESCE),
        ({"state": S.WAIT_FOR_JOBS_REQUIRED, **LATE}, {}, (), "jobs"),
        ({}, {"pods": (POD,)}, (), QUIESCE),
        (LATE, {"pods": (POD,)}, (), "eviction"),
        ({}, {}, ("driver",), "agent-silent"),
        ({}, {"ready": False}, (), QUIESCE),
        (LATE, {"ready": False}, (), "not-ready"),
    ],
)
def test_the_cause_of_a_release_follows_from_the_passed_limit(
    record: dict[str, Any], view: dict[str, Any], silent_agents: tuple[str, ...], cause: str
) -> None:
    node = silenced(replace(with_record(released_node(), **record), **view), *silent_agents)
    assert record_in(ends(node)).cause.startswith(f"{cause}: ")


def test_a_release_without_a_driver_agent_reports_it_as_silent() -> None:
    view = released_node()
    record = record_in(ends(without_component(view, "driver")))
    assert record.cause.startswith("agent-silent: ")


def test_a_mere_validation_keeps_its_label_in_another_variant() -> None:
    view = validating({"operation": Operation.VALIDATE, "started": False})
    step = step_of(outcome_of(replace(view, boot_id="boot-2", variant=KERNEL_6_9)))
    assert record_in(step).label == label_of(NEW)


def test_a_removal_keeps_its_empty_label_in_another_variant() -> None:
    view = replace(removal(), boot_id="boot-2", variant=KERNEL_6_9)
    assert record_in(outcome_of(view, granted(wide_pool(), view, target=""))).label == ""
