"""Step 7 at the edges: what is told to whom, with which method, and where it stands in words."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Install, Swap
from libs.contracts.facts import Gate
from libs.contracts.node import Operation
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait, WriteNode
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import NEW, NOW, driver_pod, granted, on_host, pool, with_record
from tests.unit.rollout.in_flight.builders import (
    END,
    LOADED,
    WAITS_AT_GATE,
    failing_with,
    outcome_of,
    restarting,
    swapping,
)
from tests.unit.rollout.in_flight.step_runner import at_phase, run_step, with_beats, with_results
from tests.unit.rollout.in_flight.test_driver_restart_ends import removal
from tests.unit.rollout.in_flight.test_validation import outcome_of as validates
from tests.unit.rollout.in_flight.test_validation import ready
from tests.unit.rollout.outcomes import record_in, slot_writes, step_of, wait_of


def test_unknown_pods_do_not_hold_up_a_swap() -> None:
    """The pods were evicted before the start; the kernel reports what still holds the driver."""
    view = restarting(WAITS_AT_GATE, record={"paused": True}, pods=None)
    assert list(slot_writes(outcome_of(view))) == ["driver"]


def test_a_swap_for_another_label_is_sent_again() -> None:
    view = swapping(WAITS_AT_GATE)
    assert isinstance(outcome_of(view), Wait)
    other = replace(WAITS_AT_GATE, label="another")
    moved = replace(with_record(view, label="another"), driver_pods=(other,))
    assert list(slot_writes(outcome_of(moved))) == ["driver"]


def test_a_swap_sent_at_the_moment_of_the_start_counts() -> None:
    assert isinstance(outcome_of(swapping(WAITS_AT_GATE, record={"since": NOW})), Wait)
    assert list(slot_writes(outcome_of(with_record(swapping(WAITS_AT_GATE), since=NOW + 1))))


def test_a_swap_waits_where_no_driver_agent_is_expected() -> None:
    view = restarting(WAITS_AT_GATE)
    parts = {name: part for name, part in view.components.items() if name != "driver"}
    wait = wait_of(outcome_of(replace(view, components=parts)))
    assert (wait.code, wait.detail) == (
        WaitCode.GATE,
        "no driver agent is expected on this node any more",
    )


def test_a_gate_shut_after_the_swap_waits_for_the_bus() -> None:
    view = with_results(swapping(WAITS_AT_GATE), "driver")
    view = replace(view, gate=Gate(waiting_pod_uid=WAITS_AT_GATE.uid))
    assert list(slot_writes(outcome_of(view))) == ["driver"]
    assert wait_of(outcome_of(view, bus_down_since=NOW - 5)).code is WaitCode.BUS


# With which method.


def command_sent(view: NodeView, where: PoolView) -> Swap | Install:
    body = slot_writes(outcome_of(view, where=where))["driver"]
    assert isinstance(body, Swap | Install)
    return body


def without_builds(method: InstallMethod) -> PoolView:
    return replace(pool(), builds={}, method=method)


def test_a_removal_swaps_to_no_driver_with_every_method() -> None:
    view = removal()
    body = Swap(label="", old_pod_uid=f"pod-target-old-{view.name}")
    for where in (pool(), on_host(pool())):
        assert command_sent(view, granted(where, view, target="")) == body


def test_the_command_follows_the_build_and_not_the_method_of_the_policy() -> None:
    view = restarting(WAITS_AT_GATE)
    turned = replace(pool(), method=InstallMethod.HOST)
    assert isinstance(command_sent(view, granted(turned, view)), Swap)
    back = replace(on_host(pool()), method=InstallMethod.CONTAINER)
    assert isinstance(command_sent(view, granted(back, view)), Install)


@pytest.mark.parametrize(
    ("operation", "method"),
    [(Operation.INSTALL, InstallMethod.CONTAINER), (Operation.UPGRADE, InstallMethod.HOST)],
)
def test_nothing_is_installed_without_an_artefact(
    operation: Operation, method: InstallMethod
) -> None:
    view = restarting(record={"operation": operation})
    wait = wait_of(outcome_of(view, where=granted(without_builds(method), view)))
    assert (wait.code, wait.detail) == (
        WaitCode.TARGET_MISSING,
        "there is no artefact of its target any more",
    )


def test_a_pod_without_a_build_is_admitted_by_its_label() -> None:
    view = restarting(WAITS_AT_GATE)
    body = command_sent(view, granted(without_builds(InstallMethod.CONTAINER), view))
    assert isinstance(body, Swap)
    assert (body.label, body.install_digest) == (WAITS_AT_GATE.label, "")


# At the gate, and until when.


def test_a_ready_driver_is_not_shut_out_by_an_old_gate_report() -> None:
    pod = driver_pod(NEW)
    view = with_results(swapping(pod), "driver")
    view = replace(view, gate=Gate(waiting_pod_uid=pod.uid), loaded=LOADED)
    assert record_in(outcome_of(view)).state == "validation-required"


def test_a_waiting_pod_is_not_shut_out_while_the_swap_runs() -> None:
    view = ready()
    pod = driver_pod(NEW, uid="next", ready=False, started=None)
    shut = replace(view, driver_pods=(pod,), gate=Gate(waiting_pod_uid="next"))
    assert record_in(validates(shut)).state == "pod-restart-required"
    driver = replace(shut.components["driver"], result=None)
    still = replace(shut, components={**shut.components, "driver": driver})
    assert not isinstance(step_of(validates(still)).actions[0], WriteNode)


def test_a_swap_is_waited_for_no_longer_than_its_state() -> None:
    wait = step_of(outcome_of(restarting(WAITS_AT_GATE, record={"deadline": NOW + 30}))).wait
    assert wait is not None
    assert wait.until == NOW + 30


@pytest.mark.parametrize(("detail", "cause"), [("pid 12", "busy: pid 12"), ("", "busy: unload")])
def test_a_blocked_unload_names_its_holder(detail: str, cause: str) -> None:
    view = with_beats(at_phase(swapping(WAITS_AT_GATE), "driver", "unload", detail), NOW + 120)
    assert failing_with(outcome_of(view, NOW + 120), view, NOW + 121).cause == cause


def test_a_ready_pod_without_a_start_time_is_waited_for() -> None:
    view = with_results(swapping(driver_pod(NEW, started=None)), "driver")
    assert wait_of(outcome_of(replace(view, loaded=LOADED))).code is WaitCode.DRIVER_START


# Where it stands.


def cause_at_limit(view: NodeView) -> str:
    return record_in(outcome_of(with_beats(view, END), END)).cause


def test_the_start_limit_reports_an_unsent_swap() -> None:
    assert (
        cause_at_limit(restarting(WAITS_AT_GATE))
        == "driver-start: its driver agent was not told yet"
    )
    view = swapping(WAITS_AT_GATE)
    parts = {name: part for name, part in view.components.items() if name != "driver"}
    said = cause_at_limit(replace(view, components=parts))
    assert said == "driver-start: its driver agent was not told yet"


def test_the_start_limit_reports_a_swap_that_has_not_begun() -> None:
    said = cause_at_limit(swapping(WAITS_AT_GATE))
    assert said == "driver-start: the driver agent has not begun swap 8.1"


@pytest.mark.parametrize(
    ("phase", "said"),
    [("gate", "gate: the label differs"), ("driver-start", "driver-start")],
)
def test_the_gate_is_quoted_only_in_the_gate_phase(phase: str, said: str) -> None:
    view = at_phase(swapping(WAITS_AT_GATE), "driver", phase)
    view = replace(view, gate=Gate(why="the label differs"))
    assert cause_at_limit(view) == f"driver-start: {said}"


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ((), "there is no driver pod with its label"),
        ((WAITS_AT_GATE,), "gpu-operator/driver-target-new-node-1 is not ready"),
        ((driver_pod(NEW),), "the agent has yet to report its modules"),
    ],
)
def test_the_start_limit_reports_what_is_missing_after_the_swap(pods: Any, said: str) -> None:
    view = replace(with_results(swapping(*pods), "driver"), loaded=None)
    assert cause_at_limit(view) == f"driver-start: {said}"


def test_on_a_host_no_driver_pod_is_reported_missing() -> None:
    view = restarting(record={"operation": Operation.INSTALL})
    where = on_host(granted(pool(), view))
    view = with_results(run_step(view, step_of(outcome_of(view, where=where))), "driver")
    record = record_in(outcome_of(replace(with_beats(view, END), loaded=None), END, where))
    assert record.cause == "driver-start: the agent has yet to report its modules"


@pytest.mark.parametrize("pod", [driver_pod(NEW), driver_pod(NEW, uid="foreign", label="")])
def test_a_removal_waits_for_every_driver_pod(pod: DriverPod) -> None:
    assert wait_of(outcome_of(removal(pod))).code is WaitCode.OLD_DRIVER
