"""Steps 5 and 6: components release the devices, and the driver label moves.

Moving the label is the start, the first step that cannot be undone; its preconditions are checked
here once more.
"""

from collections.abc import Callable, Sequence

from libs.contracts.commands import Command, CommandKind, Quiesce
from libs.contracts.node import SAFE_LOAD_ANNOTATION, Operation, UpgradeState, WaitCode
from libs.contracts.reports import Outcome as Ended
from libs.rollout import limits, slots, wait_reasons
from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    enter_state,
    recheck_at,
    state_wait,
)
from libs.rollout.in_flight.lease_end import AGENT_SILENT_REASON, NOT_READY_REASON, release
from libs.rollout.node_writes import current_driver_pod
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component, DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Readiness


def quiesce(
    f: InFlightNode, names: Sequence[str], on_timeout: Callable[[InFlightNode, str], NodeOutcome]
) -> NodeOutcome:
    """Get these components to release the devices; None: they have, or are silent."""
    pending: list[tuple[str, Component, Command]] = []
    unsent: list[str] = []
    for name in names:
        component = f.node.components.get(name)
        if component is None:
            continue
        command = _quiesce(f, component)
        if command is None:
            unsent.append(name)
        else:
            result = slots.command_result(component, command)
            is_quiet = result is not None and result.outcome == Ended.DONE
            if not (is_quiet or component.is_silent(f.now.at)):
                pending.append((name, component, command))
    if not unsent and not pending:
        return None
    if f.bus_is_down:
        return bus_wait(f)
    overdue = [entry for entry in pending if limits.is_past(quiesce_deadline(f, entry[2]), f.now)]
    if overdue:
        return on_timeout(f, f"quiesce: {_describe(overdue)}")
    return _send_quiesce(f, unsent) if unsent else _await(f, pending)


def _await(f: InFlightNode, pending: Sequence[tuple[str, Component, Command]]) -> Wait | Step:
    until = min(quiesce_deadline(f, command) for _, _, command in pending)
    if f.record.started and f.deadline is not None:
        until = min(until, f.deadline)
    silent_at = min(component.silent_at for _, component, _ in pending)
    wait = state_wait(f, WaitCode.QUIESCE, _describe(pending), until=until)
    return recheck_at(wait, silent_at, f.now)


def quiesce_deadline(f: InFlightNode, command: Command) -> float:
    """Return until when a component may take: derived from the deadline in its slot."""
    sent = command.deadline - limits.QUIESCE
    frozen = limits.deadline_extension(f.record, f.pool, f.now, reported=False)
    return command.deadline + frozen + limits.bus_outage_seconds(f.now, sent)


def _quiesce(f: InFlightNode, component: Component) -> Command | None:
    """Return the command in the slot if it is of this boot and not overtaken."""
    command = component.slot
    if command is None or command.token != f.token or command.kind != CommandKind.QUIESCE:
        return None
    if (command.node_uid, command.boot_id) != (f.node.uid, f.node.boot_id):
        return None
    is_overtaken = slots.is_lapsed(component, command, f.now) and f.now.at < command.deadline
    return None if is_overtaken else command


def _describe(pending: Sequence[tuple[str, Component, Command]]) -> str:
    """Describe which components have not released the devices yet, and why some cannot."""
    parts: list[str] = []
    missing: list[str] = []
    for name, component, command in pending:
        result = slots.command_result(component, command)
        refused = slots.refusal_text(component, command)
        if result is not None:
            reason = result.message or result.outcome.value
            parts.append(f"{name} failed to release the devices: {reason}")
        elif refused:
            parts.append(f"{name} {refused}")
        else:
            missing.append(name)
    if missing:
        parts.insert(0, f"GPU devices not yet released by {', '.join(missing)}")
    return "; ".join(parts)


def _send_quiesce(f: InFlightNode, names: Sequence[str]) -> Step:
    deadline = f.now.at + limits.QUIESCE
    actions = tuple(
        slots.new_command(f.node, name, Quiesce(), f.now, token=f.token, deadline=deadline)
        for name in names
    )
    components = ", ".join(names)
    detail = f"waiting for {components} to release the GPU devices"
    wait = state_wait(f, WaitCode.QUIESCE, detail, until=deadline)
    return Step(actions=actions, because=f"send quiesce to {components}", wait=wait)


def start(f: InFlightNode) -> NodeOutcome:
    """Step 6: move the driver label, if that is still allowed and its build is settled."""
    outcome = _blocked(f)
    if outcome is not None:
        return outcome
    old = old_driver_pod(f.node, f.record.label, f.record.operation)
    because = f"start: set the driver label to {f.record.label}"
    if f.record.operation is Operation.REMOVE:
        because = "start: remove the driver label"
    return enter_state(
        f,
        UpgradeState.POD_RESTART_REQUIRED,
        because,
        driver_label=f.record.label,
        cleared=safe_load_to_clear(f.node, f.record.label),
        started=True,
        old_pod_uid=old.uid if old is not None else "",
        evidence=None,
    )


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


def _blocked(f: InFlightNode) -> NodeOutcome:
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
    """Nothing is taken away on stale data (docs/states.md#freshness)."""
    detail = f"the latest data on {source} is more than {limits.STALE_AFTER:.0f} s old"
    return wait_reasons.wait(WaitCode.STALE, detail, now)
