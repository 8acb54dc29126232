"""The start: the driver label moves (docs/states.md#upgrade, step 6).

It is the first step that cannot be undone: what it rests on is checked here once more.
"""

from libs.contracts.node import SAFE_LOAD_ANNOTATION, Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout import limits, slots, wait_reasons
from libs.rollout.decision import NodeOutcome, Wait
from libs.rollout.failed_gpus import failed_before
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    enter_state,
    state_wait,
    write_under_lease,
)
from libs.rollout.in_flight.lease_end import AGENT_SILENT_REASON, NOT_READY_REASON, release
from libs.rollout.node_writes import NodeChange, current_driver_pod, record_in_state
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Readiness


def start(f: InFlightNode) -> NodeOutcome:
    """Step 6: move the driver label, if that is still allowed and its build is settled."""
    outcome = _start_obstacle(f)
    if outcome is not None:
        return outcome
    if f.record.operation is Operation.MIG:
        because = "start: divide the GPUs"
        return enter_state(f, UpgradeState.POD_RESTART_REQUIRED, because, started=True)
    old = old_driver_pod(f.node, f.record.label, f.record.operation)
    because = f"start: set the driver label to {f.record.label}"
    if f.record.operation is Operation.REMOVE:
        because = "start: remove the driver label"
    record = record_in_state(
        f,
        UpgradeState.POD_RESTART_REQUIRED,
        f.record,
        started=True,
        old_pod_uid=old.uid if old is not None else "",
        failed_gpus=failed_before(f.node),
        evidence=None,
    )
    change = NodeChange(
        because=because,
        record=record,
        driver_label=f.record.label,
        cleared=safe_load_to_clear(f.node, f.record.label),
    )
    return write_under_lease(f, change)


def old_driver_pod(node: NodeView, label: str, operation: Operation | None) -> DriverPod | None:
    """Return the driver pod that has to be gone before the next is admitted."""
    pod = current_driver_pod(node)
    if pod is None:
        return None
    keeps = operation is Operation.BRING_UP or node.safe_load
    return None if keeps and pod.label == label else pod


def safe_load_to_clear(node: NodeView, label: str) -> tuple[str, ...]:
    """Return the annotation to clear if the right driver pod waits for it."""
    waits_for_us = node.safe_load and any(pod.label == label for pod in node.driver_pods)
    return (SAFE_LOAD_ANNOTATION,) if waits_for_us else ()


def _start_obstacle(f: InFlightNode) -> NodeOutcome:
    """Return why the label may not move now, or the release of the node; None: it may."""
    constraints, target = f.pool.constraints, f.record.target
    if source := limits.stale_source(f.now):
        return stale_source_wait(source, f.now)
    if f.bus_is_down:
        return bus_wait(f)
    driver = f.node.components.get(slots.DRIVER)
    if driver is None or driver.is_silent(f.now.at):
        return release(f, AGENT_SILENT_REASON, back_off=True)
    if not f.node.ready:
        if f.is_overdue:
            return release(f, NOT_READY_REASON, back_off=True)
        detail = "the Node is not Ready; the driver is changed only once it is"
        return state_wait(f, WaitCode.NOT_READY, detail)
    if f.record.operation is Operation.REMOVE:
        return None
    if f.node.uid not in constraints.in_flight:
        detail = "the upgrade is being recorded in the Rollout again"
        return wait_reasons.wait(WaitCode.BUDGET, detail, f.now)
    if f.record.operation is Operation.MIG:
        return None
    if target in constraints.halted:
        detail = f"target {target} is halted: {constraints.halted[target]}"
        return wait_reasons.wait(WaitCode.HALTED, detail, f.now)
    build = f.build
    if not f.node.variant:
        detail = "operating system and kernel of the node are not known, and thus its driver build"
        return wait_reasons.wait(WaitCode.TARGET_UNSETTLED, detail, f.now)
    if build is None or build.readiness is Readiness.MISSING:
        return release(f, f"target {target} has no driver build for the node", back_off=False)
    if build.readiness is Readiness.UNSETTLED:
        detail = build.detail or f"the driver build of target {target} is being updated"
        return wait_reasons.wait(WaitCode.TARGET_UNSETTLED, detail, f.now)
    return None


def stale_source_wait(source: str, now: Instant) -> Wait:
    """Return the wait for current data on this source (docs/states.md#freshness)."""
    detail = f"the latest data on {source} is more than {limits.STALE_AFTER:.0f} s old"
    return wait_reasons.wait(WaitCode.STALE, detail, now)
