"""Nodes whose driver label has moved, and outcomes of their steps."""

from typing import Any

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import NodeRecord, UpgradeState
from libs.rollout.decision import NodeOutcome
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    command,
    component,
    driver_pod,
    granted,
    instant,
    pool,
    step_in_flight,
)
from tests.unit.rollout.in_flight.step_runner import TOKEN, in_flight, run_step, with_results
from tests.unit.rollout.outcomes import record_in, slot_writes, step_of

S = UpgradeState
QUIET = ("plugin", "telemetry", "discovery", "validator")
LOADED = LoadedDriver(version="580.1", loaded_at=NOW - 30)
END = NOW - 60 + 1800


def quiet_components(order: tuple[int, int] = (TOKEN, 1)) -> dict[str, Any]:
    proven = component(command(Idle(), order=(7, 2)))
    parts = {name: component(command(Quiesce(), order=order)) for name in QUIET}
    return {"driver": proven, **parts}


def restarting(*pods: DriverPod, record: dict[str, Any] | None = None, **changes: Any) -> NodeView:
    shown: dict[str, Any] = {
        "driver_pods": pods,
        "components": quiet_components(),
        "gate": Gate(),
        **changes,
    }
    view = in_flight(S.POD_RESTART_REQUIRED, record={"deadline": END, **(record or {})}, **shown)
    return with_results(view, *QUIET)


def outcome_of(
    view: NodeView, at: float = NOW, pool_view: PoolView | None = None, **visibility: Any
) -> NodeOutcome:
    return step_in_flight(view, pool_view or granted(pool(), view), instant(at, **visibility))


def swapping(*pods: DriverPod, **changes: Any) -> NodeView:
    """Return the node after its swap was written."""
    view = restarting(*pods, **changes)
    return run_step(view, step_of(outcome_of(view)))


def failing_with(outcome: NodeOutcome, view: NodeView, at: float = NOW) -> NodeRecord:
    """Complete a failure that begins with this outcome; return the record."""
    step = step_of(outcome)
    assert slot_writes(step) == {"driver": Idle()}
    assert record_in(step).state == S.POD_RESTART_REQUIRED
    after = with_results(run_step(view, step), "driver")
    return record_in(outcome_of(after, at))


WAITS_AT_GATE = driver_pod(NEW, started=None, ready=False)
