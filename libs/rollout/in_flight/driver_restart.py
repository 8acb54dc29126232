"""Step 7: the old driver is unloaded, and the new one passes the gate and loads.

All of it in the state `pod-restart-required`, and on the machine in one op of the driver agent
(docs/states.md#gate).
"""

from libs.contracts.commands import TASKS, Command, CommandKind, Install, Swap, describe
from libs.contracts.node import Operation, UpgradeState
from libs.contracts.reports import Outcome as Ended
from libs.contracts.waits import DRIVER_AGENT_LATE, GATE_BLOCKED, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout import limits, slots
from libs.rollout.decision import DeleteDriverPod, NodeOutcome, PodRef, Step, Wait
from libs.rollout.in_flight.division import (
    divide,
    division_command,
    is_redivided,
    noted_division,
    redivide,
)
from libs.rollout.in_flight.driver_trouble import driver_failure, start_wait, trouble_text
from libs.rollout.in_flight.eviction import evict_pods
from libs.rollout.in_flight.failure import fail
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    daemon_set_missing,
    enter_state,
    recheck_at,
    state_wait,
    with_missing_daemon_set,
    write_under_lease,
)
from libs.rollout.in_flight.lease_end import finish_removal
from libs.rollout.in_flight.quiesce import quiesce
from libs.rollout.in_flight.start import safe_load_to_clear
from libs.rollout.node_driver import waits_at_gate
from libs.rollout.node_writes import NodeChange, record_for_restart
from libs.rollout.views.machine import Component
from libs.rollout.views.pool import Readiness

_UNLOADING_PHASES = frozenset({"old-driver", "unload"})
"""Phases of a swap in which the old driver is still loaded or running."""


def pod_restart(f: InFlightNode) -> NodeOutcome:
    """Run the state until the driver is ready, and its GPUs are divided."""
    if is_redivided(f):
        return _evict_again(f) or redivide(f) or _begin_validation(f)
    missing = "" if installs_on_host(f) else daemon_set_missing(f)
    if f.is_overdue:
        progress = _progress_text(f)
        return fail(f, f"driver-start: {f'{missing}; {progress}' if missing else progress}")
    outcome = _restart_driver(f)
    return with_missing_daemon_set(f, outcome, missing) if missing else outcome


def _restart_driver(f: InFlightNode) -> NodeOutcome:
    if f.old_pods:
        return _remove_old_driver(f)
    if reason := driver_failure(f):
        return fail(f, f"driver-start: {reason}")
    if cleared := safe_load_to_clear(f.node, f.record.label):
        return write_under_lease(
            f, NodeChange(because="the driver may load now", record=f.record, cleared=cleared)
        )
    if division_command(f) is not None and not waits_at_gate(f.new_pod, f.node.gate):
        return _finish(f)
    return _free_devices(f) or _swap(f) or _finish(f)


def _evict_again(f: InFlightNode) -> NodeOutcome:
    return evict_pods(f) if f.record.paused and f.node.pods is not None else None


def _remove_old_driver(f: InFlightNode) -> NodeOutcome:
    """Wait until the old pod is deleted: no swap begins before (docs/states.md#gate-1)."""
    detail = "waiting for the old driver pod to be gone: "
    for pod in f.old_pods:
        is_recorded = pod.uid == f.record.old_pod_uid and not pod.deleting
        if is_recorded and pod.label in ("", f.record.label):
            # The label of the node still selects it, so its DaemonSet keeps it.
            ref = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
            name = pod.display_name
            return Step(
                actions=(DeleteDriverPod(pod=ref),),
                because=f"delete driver pod {name}, so that its DaemonSet creates another",
                wait=state_wait(f, WaitCode.OLD_DRIVER, f"{detail}{name}"),
            )
    return state_wait(f, WaitCode.OLD_DRIVER, f"{detail}{f.old_pods[0].display_name}")


def _free_devices(f: InFlightNode) -> NodeOutcome:
    """Evict and quiesce before an unload; usually done already before step 6."""
    if _swap_command(f) is not None or _keeps_modules(f):
        return None
    outcome = _evict_again(f)
    if outcome is not None:
        return outcome
    if f.node.loaded is not None:
        return quiesce(f, slots.QUIESCED, fail)
    offering = slots.OFFERING if f.record.operation is Operation.BRING_UP else ()
    return quiesce(f, offering, fail)


def _keeps_modules(f: InFlightNode) -> bool:
    return f.record.operation is Operation.RESTART and f.node.loaded is not None


def _swap_command(f: InFlightNode) -> Command | None:
    """Return the op of this state from the slot, if it is of this boot and this start."""
    kinds = CommandKind.SWAP, CommandKind.INSTALL
    command = f.command_of_boot(slots.DRIVER, *kinds)
    if command is None:
        return None
    body = command.open()
    if not isinstance(body, Swap | Install) or body.label != f.record.label:
        return None
    if isinstance(body, Swap) and body.old_pod_uid != f.record.old_pod_uid:
        return None
    return command if command.deadline >= f.record.since + limits.UNLOAD else None


def _swap(f: InFlightNode) -> NodeOutcome:
    """Send the op to the driver agent and wait for it; None: it is done."""
    driver = f.node.components.get(slots.DRIVER)
    if driver is None:
        detail = "the driver agent is no longer deployed to this node"
        return state_wait(f, WaitCode.GATE, detail, who=GATE_BLOCKED)
    command = _swap_command(f)
    result = None if command is None else slots.command_result(driver, command)
    if f.bus_is_down and result is None:
        return bus_wait(f)
    if command is None:
        return _send_swap(f)
    if result is None:
        return _await_swap(f, driver, command)
    if result.outcome != Ended.DONE:
        reason = result.message or "no reason was reported"
        return fail(f, f"{result.code or 'driver-start'}: {reason}")
    return _send_swap(f) if waits_at_gate(f.new_pod, f.node.gate) else None


def _send_swap(f: InFlightNode) -> NodeOutcome:
    if f.bus_is_down:
        return bus_wait(f)
    build, record = f.build, f.record
    digest = build.install_digest if build is not None else ""
    if record.operation is Operation.REMOVE:
        body = Swap(label="", old_pod_uid=record.old_pod_uid)
    elif not installs_on_host(f):
        body = Swap(
            label=record.label,
            install_digest=digest,
            old_pod_uid=record.old_pod_uid,
            keep=_keeps_modules(f),
        )
    elif build is not None and build.artefact:
        body = Install(label=record.label, artefact_digest=build.artefact, install_digest=digest)
    else:
        gone = "the driver artefact of the target no longer exists"
        detail = gone if build is None or not build.detail else build.detail
        return state_wait(f, WaitCode.TARGET_MISSING, detail)
    # Not before the state, which an earlier leader may have written by a clock that was ahead: a
    # command that seems older than the state is taken for an earlier start's, and is sent again.
    deadline = max(f.now.at, record.since) + limits.UNLOAD
    sent = f.command(slots.DRIVER, body, deadline)
    kind = sent.command.kind
    detail = f"waiting for the driver agent to begin to {TASKS[kind]}"
    until = _unload_wait_until(f, sent.command)
    wait = state_wait(f, WaitCode.UNLOAD, detail, who=DRIVER_AGENT_LATE, until=until)
    because = f"tell the driver agent to {describe(kind, sent.command.order)}"
    return Step(actions=(sent,), because=because, wait=wait)


def installs_on_host(f: InFlightNode) -> bool:
    """Whether the agent installs the driver: decided by the build, not by the current policy."""
    if f.build is not None and f.build.readiness is not Readiness.MISSING:
        return bool(f.build.artefact)
    is_by_host = f.record.operation is Operation.INSTALL or f.pool.method is InstallMethod.HOST
    return is_by_host and f.new_pod is None


def is_shut_out_after_swap(f: InFlightNode) -> bool:
    """Whether another pod came to the gate after the swap: the gate opens only during a swap."""
    kinds = CommandKind.SWAP, CommandKind.MIG
    command = f.held_command(slots.DRIVER, *kinds)
    is_done = slots.slot_result(f.node, slots.DRIVER, command) is not None
    return is_done and waits_at_gate(f.new_pod, f.node.gate)


def _unload_wait_until(f: InFlightNode, command: Command) -> float:
    until = f.answer_due(command, limits.UNLOAD)
    return until if f.deadline is None else min(until, f.deadline)


def _await_swap(f: InFlightNode, driver: Component, command: Command) -> NodeOutcome:
    progress = slots.command_progress(driver, command)
    if progress is None:
        if driver.is_silent(f.now.at):
            detail = "the driver agent has stopped sending heartbeats"
            return state_wait(f, WaitCode.GATE, detail, who=GATE_BLOCKED)
        refused = slots.refusal_text(driver, command)
        if refused:
            wait = state_wait(f, WaitCode.GATE, f"the driver agent {refused}", who=GATE_BLOCKED)
            return recheck_at(wait, command.deadline, f.now)
        return state_wait(f, WaitCode.UNLOAD, _progress_text(f), who=DRIVER_AGENT_LATE)
    if progress.phase not in _UNLOADING_PHASES:
        detail = _progress_text(f)
        return _gate_wait(f, detail) if progress.phase == "gate" else start_wait(f, detail)
    if limits.is_past(f.answer_due(command, limits.UNLOAD), f.now):
        return fail(f, f"busy: {progress.detail or progress.phase}")
    code = WaitCode.UNLOAD if progress.phase == "unload" else WaitCode.OLD_DRIVER
    return state_wait(f, code, _progress_text(f), until=_unload_wait_until(f, command))


def _gate_wait(f: InFlightNode, detail: str) -> Wait:
    """Return the wait for the new pod at the gate: a person looks at one that something blocks."""
    is_blocked = trouble_text(f) or (f.node.gate is not None and f.node.gate.why)
    return state_wait(f, WaitCode.GATE, detail, who=GATE_BLOCKED if is_blocked else None)


def _finish(f: InFlightNode) -> NodeOutcome:
    if f.record.operation is Operation.REMOVE:
        # Done once no module and no container of a driver is left in this boot.
        if f.node.modules_reported and f.node.loaded is None:
            return finish_removal(f)
        detail = "waiting for the driver agent to report that no driver is loaded"
        return state_wait(f, WaitCode.UNLOAD, detail, who=DRIVER_AGENT_LATE)
    pod = f.new_pod
    ready = installs_on_host(f) or (pod is not None and pod.ready and pod.started is not None)
    if not ready or f.node.loaded is None:
        return start_wait(f, _progress_text(f))
    return divide(f) or _begin_validation(f)


def _begin_validation(f: InFlightNode) -> Step:
    # A deadline that a reboot has extended once is kept, so that reboots cannot add up.
    is_full = f.record.deadline == f.record.since + limits.DRIVER_START
    state, division = UpgradeState.VALIDATION_REQUIRED, noted_division(f)
    return enter_state(
        f,
        state,
        "the driver is ready: validation begins",
        paused=False,
        mig_digest=division.digest,
        mig_failed=division.failure,
        deadline_renewed=f.record.deadline_renewed,
        deadline=limits.deadline(state, f.pool, f.now) if is_full else f.deadline,
    )


def _progress_text(f: InFlightNode) -> str:
    """Describe the progress: the detail of a wait, or the cause of a failure."""
    if f.old_pods:
        return f"the old driver pod {f.old_pods[0].display_name} still exists"
    driver = f.node.components.get(slots.DRIVER)
    command = _swap_command(f)
    if driver is None or command is None:
        return "no command was sent to the driver agent yet"
    if slots.command_result(driver, command) is None:
        return _agent_progress_text(f, driver, command)
    pod = f.new_pod
    if pod is None and not installs_on_host(f):
        return f"no driver pod with label {f.record.label} exists yet"
    if pod is not None and not pod.ready:
        return f"driver pod {pod.display_name} is not ready yet{trouble_text(f)}"
    return "the driver agent has not reported the loaded modules yet"


def _agent_progress_text(f: InFlightNode, driver: Component, command: Command) -> str:
    progress = slots.command_progress(driver, command)
    if progress is None:
        return f"the driver agent has not begun to {describe(command.kind, command.order)}"
    detail = progress.detail or progress.phase
    if progress.phase == "gate" and f.node.gate is not None and f.node.gate.why:
        detail = f"{detail}: {f.node.gate.why}"
    return f"{detail}{trouble_text(f)}"


def restart_again(f: InFlightNode, because: str) -> Step:
    """Go back to the start of the driver; a deadline that was renewed once is kept."""
    renewed = {"deadline": f.deadline} if f.record.deadline_renewed else {}
    record = record_for_restart(
        f,
        f.record,
        old_pod_uid=f.record.old_pod_uid,
        deadline_renewed=True,
        label=booted_label(f),
        **renewed,
    )
    return write_under_lease(
        f, NodeChange(because=because, record=record, driver_label=record.label)
    )


def booted_label(f: InFlightNode) -> str:
    """Return the label of the same target for the system that is booted now."""
    if f.build is None or f.record.operation in (Operation.VALIDATE, Operation.MIG):
        return f.record.label
    return f.build.label
