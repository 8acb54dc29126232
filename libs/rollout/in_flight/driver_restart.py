"""Step 7: the old driver is unloaded, and the new one passes the gate and loads.

All of it in the state `pod-restart-required`, and on the machine in one op of the driver agent
(docs/states.md#gate).
"""

from libs.contracts.commands import Command, CommandKind, Install, Swap
from libs.contracts.node import Operation, UpgradeState
from libs.contracts.reports import Outcome as Ended
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout import limits, slots
from libs.rollout.at_rest.running_driver import waits_at_gate
from libs.rollout.decision import DeleteDriverPod, NodeOutcome, PodRef, Step, Wait
from libs.rollout.in_flight.eviction import evict_pods
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    enter_state,
    is_old_pod,
    recheck_at,
    state_wait,
    write_record,
)
from libs.rollout.in_flight.lease_end import fail, finish_removal
from libs.rollout.in_flight.start import quiesce, safe_load_to_clear
from libs.rollout.views.machine import Component, DriverPod

_PERMANENT = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Waiting reasons of the kubelet that do not go away by themselves."""

_OUT = frozenset({"old-driver", "unload"})
"""Phases of a swap in which the old driver is still loaded or running."""


def pod_restart(f: InFlightNode) -> NodeOutcome:
    """Run the state until the driver is ready and the agent reports its modules."""
    if f.is_overdue:
        return fail(f, f"driver-start: {_progress_text(f)}")
    return (
        _old_driver(f)
        or _broken(f)
        or _safe_load(f)
        or _cleared(f)
        or _swapped(f)
        or _gone(f)
        or _ready(f)
    )


def _old_driver(f: InFlightNode) -> NodeOutcome:
    """Wait until the object of the old pod is gone: no swap before (docs/states.md#gate-1)."""
    old = [pod for pod in f.node.driver_pods if is_old_pod(f.record, pod)]
    if not old:
        return None
    for pod in old:
        named = pod.uid == f.record.old_pod_uid and not pod.deleting
        if named and pod.label in ("", f.record.label):
            return _delete(f, pod)
    return state_wait(
        f,
        WaitCode.OLD_DRIVER,
        f"waiting for the old driver pod to be gone: {old[0].namespace}/{old[0].name}",
    )


def _delete(f: InFlightNode, pod: DriverPod) -> Step:
    ref = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
    shown = f"{pod.namespace}/{pod.name}"
    wait = state_wait(f, WaitCode.OLD_DRIVER, f"waiting for the old driver pod to be gone: {shown}")
    because = f"delete driver pod {shown}, so that its DaemonSet creates another"
    return Step(actions=(DeleteDriverPod(pod=ref),), because=because, wait=wait)


def driver_failure(f: InFlightNode) -> str:
    """Return why the new driver pod will never run; empty: it may."""
    pod = f.new_pod
    if pod is None:
        return ""
    if pod.trouble.partition(":")[0] in _PERMANENT:
        return pod.trouble
    if pod.restarts >= limits.RESTARTS:
        return f"the driver container restarted {pod.restarts} times{_trouble(pod)}"
    return ""


def _broken(f: InFlightNode) -> NodeOutcome:
    why = driver_failure(f)
    return fail(f, f"driver-start: {why}") if why else None


def _safe_load(f: InFlightNode) -> Step | None:
    cleared = safe_load_to_clear(f.node, f.record.label)
    if not cleared:
        return None
    return write_record(f, f.record, "the driver may load now", cleared=cleared)


def _cleared(f: InFlightNode) -> NodeOutcome:
    """Evict and quiesce before an unload; usually done already before step 6."""
    if _swap(f) is not None or _keeps(f):
        return None
    if f.record.paused and f.node.pods is not None:
        held = evict_pods(f)
        if held is not None:
            return held
    return quiesce(f, _to_quiet(f), fail)


def _to_quiet(f: InFlightNode) -> tuple[str, ...]:
    if f.node.loaded is not None:
        return slots.QUIESCED
    return (slots.PLUGIN,) if f.record.operation is Operation.BRING_UP else ()


def _keeps(f: InFlightNode) -> bool:
    return f.record.operation is Operation.RESTART and f.node.loaded is not None


def _swap(f: InFlightNode) -> Command | None:
    """Return the op of this state from the slot, if it is of this boot and this start."""
    kinds = CommandKind.SWAP, CommandKind.INSTALL
    command = slots.live_command(f.node, slots.DRIVER, f.token, f.now, *kinds)
    if command is None or command.boot_id != f.node.boot_id:
        return None
    body = command.open()
    if not isinstance(body, Swap | Install) or body.label != f.record.label:
        return None
    if isinstance(body, Swap) and body.old_pod_uid != f.record.old_pod_uid:
        return None
    return command if command.deadline >= f.record.since + limits.UNLOAD else None


def _swapped(f: InFlightNode) -> NodeOutcome:
    """Send the op to the driver agent and wait for it; None: it is done."""
    driver = f.node.components.get(slots.DRIVER)
    if driver is None:
        return state_wait(f, WaitCode.GATE, "the driver agent is no longer deployed to this node")
    command = _swap(f)
    if f.bus_is_down and (command is None or slots.command_result(driver, command) is None):
        return bus_wait(f)
    if command is None:
        return _send(f)
    result = slots.command_result(driver, command)
    if result is None:
        return _under_way(f, driver, command)
    if result.outcome != Ended.DONE:
        return fail(
            f,
            f"{result.code or 'driver-start'}: {result.message or 'no reason was reported'}",
        )
    return _send(f) if _shut_out(f) else None


def _send(f: InFlightNode) -> NodeOutcome:
    if f.bus_is_down:
        return bus_wait(f)
    body = _body(f)
    if body is None:
        return state_wait(
            f, WaitCode.TARGET_MISSING, "the driver artefact of the target no longer exists"
        )
    deadline = f.now.at + limits.UNLOAD
    told = slots.new_command(f.node, slots.DRIVER, body, f.now, token=f.token, deadline=deadline)
    kind = told.command.kind.value
    detail = f"waiting for the driver agent to begin {kind}"
    until = _sooner(f, _unloaded_by(f, told.command))
    wait = state_wait(f, WaitCode.UNLOAD, detail, until=until)
    return Step(
        actions=(told,), because=f"send {kind} {told.command.order} to the driver agent", wait=wait
    )


def _body(f: InFlightNode) -> Swap | Install | None:
    build = f.build
    digest = build.install_digest if build is not None else ""
    if f.record.operation is Operation.REMOVE:
        return Swap(label="", old_pod_uid=f.record.old_pod_uid)
    if installs_on_host(f):
        if build is None:
            return None
        artefact = build.artefact
        return Install(label=f.record.label, artefact_digest=artefact, install_digest=digest)
    old = f.record.old_pod_uid
    return Swap(label=f.record.label, install_digest=digest, old_pod_uid=old, keep=_keeps(f))


def installs_on_host(f: InFlightNode) -> bool:
    """Whether the agent installs the driver: decided by the build, not by the current policy."""
    if f.build is not None:
        return bool(f.build.artefact)
    return f.record.operation is Operation.INSTALL or f.pool.method is InstallMethod.HOST


def _shut_out(f: InFlightNode) -> bool:
    """Whether another pod came to the gate after the op, which only opens within one."""
    return waits_at_gate(f.new_pod, f.node.gate)


def is_pod_shut_out(f: InFlightNode) -> bool:
    """The same as `_shut_out`, for the state after this one."""
    command = slots.held_command(f.node, slots.DRIVER, f.token, CommandKind.SWAP)
    return slots.slot_result(f.node, slots.DRIVER, command) is not None and _shut_out(f)


def _unloaded_by(f: InFlightNode, command: Command) -> float:
    """Return until when the old driver has to be unloaded, by the deadline in the slot."""
    sent = command.deadline - limits.UNLOAD
    frozen = limits.deadline_extension(f.record, f.pool, f.now, reported=False)
    return command.deadline + frozen + limits.bus_outage_seconds(f.now, sent)


def _sooner(f: InFlightNode, until: float) -> float:
    return until if f.deadline is None else min(until, f.deadline)


def _under_way(f: InFlightNode, driver: Component, command: Command) -> NodeOutcome:
    progress = slots.command_progress(driver, command)
    if progress is None:
        return _not_begun(f, driver, command)
    if progress.phase not in _OUT:
        code = WaitCode.GATE if progress.phase == "gate" else WaitCode.DRIVER_START
        return state_wait(f, code, _progress_text(f))
    until = _unloaded_by(f, command)
    if limits.is_past(until, f.now):
        return fail(f, f"busy: {progress.detail or progress.phase}")
    code = WaitCode.UNLOAD if progress.phase == "unload" else WaitCode.OLD_DRIVER
    return state_wait(f, code, _progress_text(f), until=_sooner(f, until))


def _not_begun(f: InFlightNode, driver: Component, command: Command) -> Wait | Step:
    if driver.is_silent(f.now.at):
        return state_wait(f, WaitCode.GATE, "the driver agent has stopped sending heartbeats")
    refused = slots.refusal_text(driver, command)
    if refused:
        wait = state_wait(f, WaitCode.GATE, f"the driver agent {refused}")
        return recheck_at(wait, command.deadline, f.now)
    detail = f"the driver agent has not begun {command.kind.value} {command.order}"
    return state_wait(f, WaitCode.UNLOAD, detail)


def _gone(f: InFlightNode) -> NodeOutcome:
    """End a removal once no module and no container of a driver is left in this boot."""
    if f.record.operation is not Operation.REMOVE:
        return None
    if f.node.modules_reported and f.node.loaded is None:
        return finish_removal(f)
    return state_wait(
        f, WaitCode.UNLOAD, "waiting for the driver agent to report that no driver is loaded"
    )


def _ready(f: InFlightNode) -> NodeOutcome:
    pod = f.new_pod
    ready = installs_on_host(f) or (pod is not None and pod.ready and pod.started is not None)
    if not ready or f.node.loaded is None:
        return state_wait(f, WaitCode.DRIVER_START, _progress_text(f))
    return enter_state(
        f,
        UpgradeState.VALIDATION_REQUIRED,
        "the driver is ready: validation begins",
        paused=False,
        deadline_renewed=f.record.deadline_renewed,
        deadline=_validated_by(f),
    )


def _validated_by(f: InFlightNode) -> float | None:
    """Return the deadline of the validation: not extended again by a reboot."""
    whole = f.record.deadline == f.record.since + limits.DRIVER_START
    return limits.deadline(UpgradeState.VALIDATION_REQUIRED, f.pool, f.now) if whole else f.deadline


def _progress_text(f: InFlightNode) -> str:
    """Describe the progress: the detail of a wait, or the cause of a failure."""
    old = [pod for pod in f.node.driver_pods if is_old_pod(f.record, pod)]
    if old:
        return f"the old driver pod {old[0].namespace}/{old[0].name} is still there"
    driver = f.node.components.get(slots.DRIVER)
    command = _swap(f)
    if driver is None or command is None:
        return "no command was sent to the driver agent yet"
    if slots.command_result(driver, command) is None:
        return _agent_progress_text(f, driver, command)
    pod = f.new_pod
    if pod is None and not installs_on_host(f):
        return f"no driver pod with label {f.record.label} exists yet"
    if pod is not None and not pod.ready:
        return f"driver pod {pod.namespace}/{pod.name} is not ready yet{_trouble(pod)}"
    return "the driver agent has not reported the loaded modules yet"


def _agent_progress_text(f: InFlightNode, driver: Component, command: Command) -> str:
    progress = slots.command_progress(driver, command)
    if progress is None:
        return f"the driver agent has not begun {command.kind.value} {command.order}"
    said = progress.detail or progress.phase
    if progress.phase == "gate" and f.node.gate is not None and f.node.gate.why:
        said = f"{said}: {f.node.gate.why}"
    return f"{said}{_trouble(f.new_pod)}"


def _trouble(pod: DriverPod | None) -> str:
    return f" ({pod.trouble})" if pod is not None and pod.trouble else ""
