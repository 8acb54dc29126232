"""Steps 5 and 6: components release the devices, and the driver label moves."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Quiesce
from libs.contracts.node import SAFE_LOAD_ANNOTATION, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Refusal, RefusalCode
from libs.contracts.waits import WaitCode
from libs.rollout.in_flight.start import old_driver_pod, safe_load_to_clear
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    BOOT,
    NEW,
    NOW,
    OLD,
    command,
    component,
    done,
    driver_pod,
    granted,
    instant,
    label_of,
    pool,
    slot_in,
    step_in_flight,
    with_build,
)
from tests.unit.rollout.in_flight.builders import QUIET, WAITS_AT_GATE, outcome_of, restarting
from tests.unit.rollout.in_flight.builders import outcome_of as restarts
from tests.unit.rollout.in_flight.step_runner import (
    TOKEN,
    in_flight,
    run_step,
    silenced,
    with_beats,
    with_component,
    with_results,
)
from tests.unit.rollout.outcomes import node_write, record_in, slot_writes, step_of, wait_of

S = UpgradeState
LIMIT = 240.0


def emptied(**changes: Any) -> NodeView:
    return in_flight(S.POD_DELETION_REQUIRED, record={"deadline": NOW + 300}, **changes)


def quiescing(**changes: Any) -> NodeView:
    view = emptied(**changes)
    return run_step(view, step_of(outcome_of(view)))


def quiet(**changes: Any) -> NodeView:
    return with_results(quiescing(**changes), *QUIET)


def test_every_component_but_the_driver_agent_is_quiesced() -> None:
    step = step_of(outcome_of(emptied()))
    assert slot_writes(step) == dict.fromkeys(QUIET, Quiesce())
    assert step.wait is not None
    assert (step.wait.code, step.wait.until) == (WaitCode.QUIESCE, NOW + LIMIT)
    view = run_step(emptied(), step)
    for name in QUIET:
        slot = slot_in(view, name)
        assert (slot.order, slot.deadline) == (Order(TOKEN, 1), NOW + LIMIT)
        assert (slot.boot_id, slot.epoch, slot.node_uid) == (BOOT, 3, view.uid)


def test_unexpected_components_get_no_command() -> None:
    view = emptied()
    two_components = {
        name: part for name, part in view.components.items() if name in ("driver", "plugin")
    }
    assert set(slot_writes(outcome_of(replace(view, components=two_components)))) == {"plugin"}


def test_pending_components_are_named() -> None:
    view = with_results(quiescing(), "plugin", "validator")
    wait = wait_of(outcome_of(view, NOW + 10))
    assert wait.code == WaitCode.QUIESCE
    assert "telemetry, discovery" in wait.detail
    assert wait.until == NOW + LIMIT


def test_a_silent_component_is_commanded_but_not_awaited() -> None:
    view = silenced(emptied(), "telemetry")
    assert set(slot_writes(outcome_of(view))) == set(QUIET)
    view = with_results(silenced(quiescing(), "telemetry"), "plugin", "discovery", "validator")
    assert record_in(outcome_of(view)).state == S.POD_RESTART_REQUIRED


def test_a_component_is_rechecked_when_it_counts_as_silent() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    step = step_of(outcome_of(view))
    assert (step.actions, step.wake_at) == ((), view.components["telemetry"].silent_at)
    beats = with_beats(view, NOW + 160)
    beats = with_component(beats, "telemetry", view.components["telemetry"])
    assert record_in(outcome_of(beats, NOW + 160)).state == S.POD_RESTART_REQUIRED


def test_a_component_that_cannot_quiesce_reports_the_reason() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    view = with_results(view, "telemetry", outcome="failed", message="NVML hangs")
    detail = wait_of(outcome_of(view)).detail
    assert detail.startswith("telemetry ")
    assert detail.endswith(": NVML hangs")


def test_a_refusal_is_quoted() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    refusal = Refusal(code=RefusalCode.UNKNOWN_KIND, message="too old", token=TOKEN, op=1)
    view = with_component(view, "telemetry", replace(view.components["telemetry"], refusal=refusal))
    assert (
        "refused to close the GPU devices (command quiesce 8.1): too old"
        in wait_of(outcome_of(view)).detail
    )


def test_the_quiesce_limit_releases_with_a_back_off() -> None:
    at = NOW + LIMIT
    view = with_beats(with_results(quiescing(), "plugin", "discovery", "validator"), at)
    assert wait_of(outcome_of(view, at - 1)).code == WaitCode.QUIESCE
    step = step_of(outcome_of(view, at))
    assert slot_writes(step) == dict.fromkeys(QUIET, Idle())
    released = run_step(view, step)
    assert wait_of(outcome_of(released, at + 1)).code == WaitCode.QUIESCE
    record = record_in(outcome_of(with_results(released, *QUIET), at + 2))
    assert record.state == S.UPGRADE_REQUIRED
    assert record.cause.startswith("quiesce: ")
    assert record.back_off_until == at + 2 + 600


def test_a_reboot_before_the_start_repeats_the_commands() -> None:
    view = replace(quiet(), boot_id="boot-2")
    step = step_of(outcome_of(view))
    assert slot_writes(step) == dict.fromkeys(QUIET, Quiesce())
    slot = slot_in(run_step(view, step), "plugin")
    assert (slot.order, slot.boot_id) == (Order(TOKEN, 2), "boot-2")


def test_no_command_is_sent_during_a_bus_outage() -> None:
    wait = wait_of(outcome_of(emptied(), bus_down_since=NOW - 30))
    assert (wait.code, wait.until) == (WaitCode.BUS, None)


# The start.


def test_the_start_moves_the_label_and_names_the_old_pod() -> None:
    write = node_write(outcome_of(quiet()))
    record = write.applied.record
    assert record is not None
    assert (write.applied.driver_label, record.label) == (label_of(NEW), label_of(NEW))
    assert (record.started, record.old_pod_uid) == (True, f"pod-{OLD}-node-1")
    assert (record.evidence, record.paused) == (None, True)
    assert (record.since, record.deadline) == (NOW, NOW + 1800)
    assert (write.applied.unschedulable, write.lowers_capacity) == (True, False)


def test_the_old_pod_is_the_admitted_one() -> None:
    view = quiet()
    waiting_pod = driver_pod(OLD, uid="late", started=None, ready=False)
    going = driver_pod(OLD, uid="going", deleting=True)
    view = replace(view, driver_pods=(going, waiting_pod, *view.driver_pods))
    assert record_in(outcome_of(view)).old_pod_uid == f"pod-{OLD}-node-1"
    assert record_in(outcome_of(replace(view, driver_pods=(going,)))).old_pod_uid == "going"
    assert record_in(outcome_of(replace(view, driver_pods=()))).old_pod_uid == ""


def test_a_right_pod_waiting_for_safe_load_is_not_swapped() -> None:
    view = quiet(safe_load=True, driver_pods=(driver_pod(NEW, started=None, ready=False),))
    view = replace(view, driver_label=label_of(NEW))
    write = node_write(outcome_of(view))
    assert write.applied.cleared == (SAFE_LOAD_ANNOTATION,)
    assert write.applied.record is not None
    assert write.applied.record.old_pod_uid == ""


def granted_pool(view: NodeView, **constraints: Any) -> PoolView:
    pool_view = granted(pool(), view)
    return replace(pool_view, constraints=replace(pool_view.constraints, **constraints))


@pytest.mark.parametrize(
    ("constraints", "visibility", "code"),
    [
        ({}, {"ages": {"pods": 91.0}}, WaitCode.STALE),
        ({}, {"bus_down_since": NOW - 1}, WaitCode.BUS),
        ({"in_flight": {}}, {}, WaitCode.BUDGET),
        ({"halted": {NEW: "3 failed"}}, {}, WaitCode.HALTED),
    ],
)
def test_why_a_ready_node_is_not_started(
    constraints: dict[str, Any], visibility: dict[str, Any], code: WaitCode
) -> None:
    view = quiet()
    wait = wait_of(outcome_of(view, pool_view=granted_pool(view, **constraints), **visibility))
    assert (wait.code, wait.until) == (code, None)


def test_a_missing_target_releases_the_node() -> None:
    view = quiet()
    pool_view = with_build(granted(pool(), view), readiness=Readiness.MISSING)
    released = run_step(view, step_of(outcome_of(view, pool_view=pool_view)))
    record = record_in(outcome_of(with_results(released, *QUIET), pool_view=pool_view))
    assert (record.state, record.back_off_until) == (S.UPGRADE_REQUIRED, 0.0)


def test_a_node_of_unknown_variant_is_not_started() -> None:
    wait = wait_of(outcome_of(quiet(variant="")))
    assert (wait.code, wait.until) == (WaitCode.TARGET_UNSETTLED, None)


def test_a_node_with_a_silent_driver_agent_is_not_started() -> None:
    released = run_step(view := silenced(quiet(), "driver"), step_of(outcome_of(view)))
    assert slot_writes(outcome_of(view)) == dict.fromkeys(QUIET, Idle())
    record = record_in(outcome_of(with_results(released, *QUIET)))
    assert record.state == S.UPGRADE_REQUIRED
    assert record.cause.startswith("agent-silent: ")


def test_a_node_that_is_not_ready_is_not_started() -> None:
    view = quiet(ready=False)
    wait = wait_of(outcome_of(view))
    assert (wait.code, wait.until) == (WaitCode.NOT_READY, NOW + 300)
    view = with_beats(view, NOW + 300)
    released = run_step(view, step_of(outcome_of(view, NOW + 300)))
    record = record_in(outcome_of(with_results(released, *QUIET), NOW + 301))
    assert record.state == S.UPGRADE_REQUIRED
    assert record.cause.startswith("not-ready: ")


def test_a_removal_is_started_in_a_halt() -> None:
    view = in_flight(
        S.POD_DELETION_REQUIRED,
        record={"operation": Operation.REMOVE, "target": "", "label": ""},
        excluded=True,
    )
    view = with_results(run_step(view, step_of(outcome_of(view))), *QUIET)
    pool_view = granted_pool(view, halted={"": "no target", NEW: "3 failed"})
    write = node_write(outcome_of(view, pool_view=pool_view))
    assert (write.applied.driver_label, write.applied.state) == ("", S.POD_RESTART_REQUIRED)


def test_a_new_leader_writes_its_epoch_into_the_slots_first() -> None:
    view = quiescing()
    step = step_of(step_in_flight(view, granted(pool(), view), instant(epoch=4)))
    after = run_step(view, step)
    for name, part in view.components.items():
        old, new = part.slot, after.components[name].slot
        assert old is not None
        assert new == replace(old, epoch=4)
    assert isinstance(after.record, NodeRecord)
    wait = wait_of(step_in_flight(after, granted(pool(), after), instant(epoch=4)))
    assert wait.code == WaitCode.QUIESCE


def test_a_new_leader_writes_no_slot_during_a_bus_outage() -> None:
    view = quiescing()
    now = instant(epoch=4, bus_down_since=NOW - 5)
    assert wait_of(step_in_flight(view, granted(pool(), view), now)).code == WaitCode.BUS


LABEL = label_of(NEW)


def test_before_the_start_only_the_slot_deadline_ends_the_wait() -> None:
    """The deadline of the state is for its pods."""
    late = in_flight(S.POD_DELETION_REQUIRED, record={"deadline": NOW + 10})
    view = run_step(late, step_of(outcome_of(late)))
    assert wait_of(outcome_of(view)).until == NOW + LIMIT


@pytest.mark.parametrize(("deadline", "until"), [(NOW + 10, NOW + 10), (None, NOW + LIMIT)])
def test_after_the_start_the_state_deadline_ends_the_wait_too(
    deadline: float | None, until: float
) -> None:
    view = restarting(WAITS_AT_GATE, record={"deadline": deadline})
    asked = component(command(Quiesce(), order=(TOKEN, 1), deadline=NOW + LIMIT))
    assert wait_of(restarts(with_component(view, "plugin", asked))).until == until


def test_a_command_of_an_earlier_lease_is_sent_again() -> None:
    before = component(command(Quiesce(), order=(TOKEN - 1, 1), deadline=NOW + LIMIT))
    view = with_results(with_component(emptied(), "plugin", before), "plugin")
    assert "plugin" in slot_writes(outcome_of(view))


def test_a_superseded_command_is_sent_again_until_the_limit() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    view = with_results(view, "telemetry", outcome="superseded")
    assert slot_writes(outcome_of(view)) == {"telemetry": Quiesce()}
    at = NOW + LIMIT
    step = step_of(outcome_of(with_beats(view, at), at))
    assert "quiesce: telemetry " in step.because


def test_a_failure_without_a_message_is_quoted_with_its_outcome() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    view = with_results(view, "telemetry", outcome="failed")
    assert wait_of(outcome_of(view)).detail.endswith(": failed")


def test_the_start_names_the_new_driver_label() -> None:
    assert LABEL in step_of(outcome_of(quiet())).because
    removed = {"operation": Operation.REMOVE, "target": "", "label": "", "deadline": NOW + 300}
    view = in_flight(S.POD_DELETION_REQUIRED, record=removed, excluded=True)
    view = with_results(run_step(view, step_of(outcome_of(view))), *QUIET)
    assert LABEL not in step_of(outcome_of(view)).because


@pytest.mark.parametrize(
    ("operation", "waits", "target", "goes"),
    [
        (Operation.UPGRADE, False, OLD, True),
        (Operation.SAME_LABEL, False, NEW, True),
        (Operation.BRING_UP, False, NEW, False),
        (Operation.BRING_UP, False, OLD, True),
        (Operation.UPGRADE, True, NEW, False),
        (Operation.UPGRADE, True, OLD, True),
    ],
)
def test_which_pod_has_to_go_before_the_next_is_admitted(
    operation: Operation, target: str, *, waits: bool, goes: bool
) -> None:
    view = done(target=target, safe_load=waits)
    assert (old_driver_pod(view, LABEL, operation) is not None) is goes


def test_safe_load_is_cleared_for_the_right_driver_only() -> None:
    waiting = done(safe_load=True)
    assert safe_load_to_clear(waiting, LABEL) == (SAFE_LOAD_ANNOTATION,)
    assert safe_load_to_clear(replace(waiting, driver_pods=(driver_pod(OLD),)), LABEL) == ()
    assert safe_load_to_clear(done(), LABEL) == ()


@pytest.mark.parametrize(("detail", "expected"), [("generation 4", "generation 4"), ("", NEW)])
def test_an_unsettled_target_reports_its_detail(detail: str, expected: str) -> None:
    view = quiet()
    pool_view = with_build(granted(pool(), view), readiness=Readiness.UNSETTLED, detail=detail)
    wait = wait_of(outcome_of(view, pool_view=pool_view))
    assert wait.code is WaitCode.TARGET_UNSETTLED
    assert expected in wait.detail
