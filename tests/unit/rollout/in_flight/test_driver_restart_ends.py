"""How step 7 ends: ready, removed or failed, and with which cause."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import Operation
from libs.contracts.waits import DRIVER_AGENT_LATE, WaitCode
from libs.fleet.node import DriverState, driver_state
from libs.rollout.decision import WriteNode
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    driver_pod,
    granted,
    on_host,
    pool,
    without_component,
)
from tests.unit.rollout.in_flight.builders import (
    END,
    LOADED,
    QUIET,
    WAITS_AT_GATE,
    S,
    failing_with,
    outcome_of,
    restarting,
    swapping,
)
from tests.unit.rollout.in_flight.step_runner import at_phase, run_step, with_beats, with_results
from tests.unit.rollout.in_flight.test_validation import outcome_of as validates
from tests.unit.rollout.in_flight.test_validation import ready
from tests.unit.rollout.outcomes import node_write, record_in, slot_writes, step_of, wait_of

# Results of a driver restart.


def test_a_driver_that_is_ready_and_loaded_is_validated() -> None:
    ready = driver_pod(NEW, started=NOW - 5)
    view = with_results(swapping(ready), "driver")
    record = record_in(outcome_of(replace(view, loaded=LOADED)))
    assert (record.state, record.paused, record.deadline) == (
        S.VALIDATION_REQUIRED,
        False,
        NOW + 600,
    )


@pytest.mark.parametrize(
    ("pods", "loaded"),
    [
        ((), LOADED),
        ((WAITS_AT_GATE,), LOADED),
        ((driver_pod(NEW, ready=False),), LOADED),
        ((driver_pod(NEW),), None),
    ],
)
def test_a_driver_needs_a_ready_pod_and_loaded_modules(
    pods: tuple[DriverPod, ...], loaded: LoadedDriver | None
) -> None:
    view = with_results(swapping(*pods), "driver")
    wait = wait_of(outcome_of(replace(view, loaded=loaded)))
    assert (wait.code, wait.until) == (WaitCode.DRIVER_START, END)


def test_the_unload_limit_names_the_holder_of_the_devices() -> None:
    view = with_beats(at_phase(swapping(WAITS_AT_GATE), "driver", "unload", "pid 12"), NOW + 120)
    assert wait_of(outcome_of(view, NOW + 119)).code == WaitCode.UNLOAD
    record = failing_with(outcome_of(view, NOW + 120), view, NOW + 121)
    assert (record.state, record.cause) == (S.UPGRADE_FAILED, "busy: pid 12")


def test_a_failed_node_waits_for_its_agent_and_for_no_owner_of_a_process() -> None:
    view = with_beats(at_phase(swapping(WAITS_AT_GATE), "driver", "unload", "pid 12"), NOW + 120)
    outcome = outcome_of(view, NOW + 120)
    wait = wait_of(outcome_of(run_step(view, step_of(outcome)), NOW + 121))
    assert wait.detail == "the upgrade failed; waiting for the driver agent to stop: busy: pid 12"
    assert wait.who == DRIVER_AGENT_LATE


def test_the_unload_limit_does_not_end_the_start() -> None:
    view = with_beats(at_phase(swapping(WAITS_AT_GATE), "driver", "driver-start"), NOW + 500)
    assert wait_of(outcome_of(view, NOW + 500)).code == WaitCode.DRIVER_START


def test_the_start_limit_reports_the_phase() -> None:
    pod = replace(WAITS_AT_GATE, trouble="ImagePullBackOff")
    view = with_beats(at_phase(swapping(pod), "driver", "driver-start"), END)
    assert wait_of(outcome_of(view, END - 1)).code == WaitCode.DRIVER_START
    record = failing_with(outcome_of(view, END), view, END + 1)
    assert record.cause == "driver-start: driver-start (ImagePullBackOff)"


@pytest.mark.parametrize(
    ("code", "message", "cause"),
    [
        ("busy", "pid 12", "busy: pid 12"),
        ("driver-start", "modprobe: no such device", "driver-start: modprobe: no such device"),
        ("", "", "driver-start: "),
    ],
)
def test_the_agent_failure_becomes_the_cause(code: str, message: str, cause: str) -> None:
    view = swapping(WAITS_AT_GATE)
    view = with_results(view, "driver", outcome="failed", code=code, message=message)
    actual = failing_with(outcome_of(view), view).cause
    assert cause in actual
    assert actual == actual.strip()


@pytest.mark.parametrize(
    ("pod", "cause", "shown"),
    [
        (
            driver_pod(NEW, restarts=3, trouble="CrashLoopBackOff"),
            "driver-start: the driver container restarted 3 times (CrashLoopBackOff)",
            DriverState.NONE,
        ),
        (
            replace(WAITS_AT_GATE, trouble="InvalidImageName: driver:??"),
            "driver-start: InvalidImageName: driver:??",
            DriverState.UNKNOWN,
        ),
    ],
)
def test_a_hopeless_driver_fails_at_once(pod: DriverPod, cause: str, shown: DriverState) -> None:
    view = swapping(WAITS_AT_GATE)
    view = replace(view, driver_pods=(pod,))
    record = failing_with(outcome_of(view), view)
    assert (record.cause, driver_state(record)) == (cause, shown)


@pytest.mark.parametrize("pod", [driver_pod(NEW, restarts=2, ready=False)])
def test_two_restarts_are_tolerated(pod: DriverPod) -> None:
    assert wait_of(outcome_of(swapping(pod))).code == WaitCode.UNLOAD


# A removal.


def removal(*pods: DriverPod, **changes: Any) -> NodeView:
    record = {"operation": Operation.REMOVE, "target": "", "label": ""}
    return restarting(*pods, record=record, driver_label="", excluded=True, **changes)


def test_a_removal_ends_when_modules_and_containers_are_gone() -> None:
    view = removal()
    view = with_results(run_step(view, step_of(outcome_of(view))), "driver")
    assert wait_of(outcome_of(view)).code == WaitCode.UNLOAD  # the old modules are still reported
    unseen = replace(view, loaded=None, modules_reported=False)
    assert wait_of(outcome_of(unseen)).code == WaitCode.UNLOAD
    step = step_of(outcome_of(replace(view, loaded=None)))
    applied = node_write(step).applied
    assert (applied.state, applied.record, applied.lease, applied.unschedulable) == (
        "",
        None,
        None,
        None,
    )
    assert slot_writes(step) == dict.fromkeys(("driver", *QUIET), Idle())


def test_a_ready_driver_is_not_shut_out_by_an_old_gate_report() -> None:
    pod = driver_pod(NEW)
    view = with_results(swapping(pod), "driver")
    view = replace(view, gate=Gate(waiting_pod_uid=pod.uid), loaded=LOADED)
    assert record_in(outcome_of(view)).state == "validation-required"


def test_a_waiting_pod_is_not_shut_out_while_the_swap_runs() -> None:
    view = ready()
    pod = driver_pod(NEW, uid="next", ready=False, started=None)
    shut_out = replace(view, driver_pods=(pod,), gate=Gate(waiting_pod_uid="next"))
    assert record_in(validates(shut_out)).state == "pod-restart-required"
    driver = replace(shut_out.components["driver"], result=None)
    still = replace(shut_out, components={**shut_out.components, "driver": driver})
    assert not isinstance(step_of(validates(still)).actions[0], WriteNode)


@pytest.mark.parametrize(("detail", "cause"), [("pid 12", "busy: pid 12"), ("", "busy: unload")])
def test_a_blocked_unload_names_its_holder(detail: str, cause: str) -> None:
    view = with_beats(at_phase(swapping(WAITS_AT_GATE), "driver", "unload", detail), NOW + 120)
    assert failing_with(outcome_of(view, NOW + 120), view, NOW + 121).cause == cause


def test_a_ready_pod_without_a_start_time_is_waited_for() -> None:
    view = with_results(swapping(driver_pod(NEW, started=None)), "driver")
    assert wait_of(outcome_of(replace(view, loaded=LOADED))).code is WaitCode.DRIVER_START


def cause_at_limit(view: NodeView) -> str:
    return record_in(outcome_of(with_beats(view, END), END)).cause


def test_the_start_limit_reports_an_unsent_swap() -> None:
    view = swapping(WAITS_AT_GATE)
    text = cause_at_limit(without_component(view, "driver"))
    assert text == cause_at_limit(restarting(WAITS_AT_GATE))


def test_the_start_limit_reports_a_swap_that_has_not_begun() -> None:
    text = cause_at_limit(swapping(WAITS_AT_GATE))
    assert text.startswith("driver-start: ")
    assert text.endswith(" to change the driver (command swap 8.1)")


@pytest.mark.parametrize(
    ("phase", "expected"), [("gate", "gate: the label differs"), ("driver-start", "driver-start")]
)
def test_the_gate_is_quoted_only_in_the_gate_phase(phase: str, expected: str) -> None:
    view = at_phase(swapping(WAITS_AT_GATE), "driver", phase)
    view = replace(view, gate=Gate(why="the label differs"))
    assert cause_at_limit(view) == f"driver-start: {expected}"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((), "driver pod"),
        ((WAITS_AT_GATE,), "gpu-operator/driver-target-new-node-1"),
        ((driver_pod(NEW),), "modules"),
    ],
)
def test_the_start_limit_reports_what_is_missing_after_the_swap(pods: Any, expected: str) -> None:
    view = replace(with_results(swapping(*pods), "driver"), loaded=None)
    cause = cause_at_limit(view)
    assert cause.startswith("driver-start: ")
    assert expected in cause


def test_on_a_host_no_driver_pod_is_reported_missing() -> None:
    view = restarting(record={"operation": Operation.INSTALL})
    pool_view = on_host(granted(pool(), view))
    view = with_results(run_step(view, step_of(outcome_of(view, pool_view=pool_view))), "driver")
    record = record_in(outcome_of(replace(with_beats(view, END), loaded=None), END, pool_view))
    assert "modules" in record.cause


@pytest.mark.parametrize("pod", [driver_pod(NEW), driver_pod(NEW, uid="foreign", label="")])
def test_a_removal_waits_for_every_driver_pod(pod: DriverPod) -> None:
    assert wait_of(outcome_of(removal(pod))).code is WaitCode.OLD_DRIVER
