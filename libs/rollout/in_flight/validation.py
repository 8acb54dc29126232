"""Step 8: components resume, the validator validates the driver, and its evidence is checked
against I3.

docs/invariants.md#i3
"""

from msgspec.structs import replace

from libs.contracts.commands import Validate
from libs.contracts.node import SAFE_LOAD_ANNOTATION, Operation
from libs.contracts.reports import Evidence
from libs.contracts.reports import Outcome as Ended
from libs.contracts.waits import WaitCode
from libs.rollout import limits, slots, wait_reasons
from libs.rollout.decision import NodeOutcome, Step, WriteSlot
from libs.rollout.in_flight.driver_restart import (
    is_shut_out_after_swap,
    restart_again,
)
from libs.rollout.in_flight.driver_trouble import (
    driver_failure,
    restart_text,
    start_wait,
    trouble_text,
)
from libs.rollout.in_flight.failure import fail
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    recheck_at,
    state_wait,
    write_under_lease,
)
from libs.rollout.in_flight.lease_end import finish_upgrade
from libs.rollout.in_flight.validation_inputs import (
    ValidationInputs,
    all_answered,
    current_run,
    is_of_lease,
    mismatch,
    validate_command,
)
from libs.rollout.in_flight.validation_pod import confirm_by_pod, with_pod_step
from libs.rollout.node_driver import DriverRun, fits_runtime
from libs.rollout.node_writes import NodeChange

_RESUMED = frozenset(slots.QUIESCED) - {slots.VALIDATOR}
"""Components that resume by `idle`; the validator by its `validate`."""

_PLUGIN_STEP = "plugin"
"""The phase of the validator in which CUDA has passed, and pods may have the GPUs."""


def validation(f: InFlightNode) -> NodeOutcome:
    """Run the state until the validator has answered, or its limit has passed."""
    if f.record.operation is not Operation.VALIDATE and is_shut_out_after_swap(f):
        return restart_again(f, "the driver pod was recreated: it must pass the gate again")
    if reason := driver_failure(f):
        return fail(f, f"driver-start: {reason}")
    if f.node.safe_load:
        cleared = (SAFE_LOAD_ANNOTATION,)
        return write_under_lease(
            f, NodeChange(because="the driver may load now", record=f.record, cleared=cleared)
        )
    if f.bus_is_down:
        return bus_wait(f)
    run = current_run(f)
    command = validate_command(f, run)
    evidence = f.node.evidence
    if evidence is not None and not is_of_lease(f, evidence, command):
        evidence = None
    inputs = ValidationInputs(f, run, command, evidence)
    outcome = _divide_again(inputs) or _finish(inputs)
    if outcome is not None:
        return outcome
    if f.is_overdue:
        reason = _progress_text(inputs)
        if not inputs.ready:
            return fail(f, f"driver-start: the driver is not ready any more{trouble_text(f)}")
        if evidence is not None:
            reason = mismatch(inputs, evidence) or "a command to an agent was not answered"
        return fail(f, f"validation: {reason}")
    if step := _command_step(inputs):
        return step
    if not inputs.ready:
        detail = f"waiting for the driver to become ready for validation{trouble_text(f)}"
        return start_wait(f, detail)
    return state_wait(f, WaitCode.VALIDATION, f"{_progress_text(inputs)}{restart_text(f)}")


def _divide_again(inputs: ValidationInputs) -> NodeOutcome:
    """Divide the GPUs once more where the validator found another division; then give that up."""
    f, evidence, record = inputs.f, inputs.evidence, inputs.f.record
    if evidence is None or not evidence.passed or not record.mig_digest or record.mig_failed:
        return None
    if evidence.mig_digest == record.mig_digest or mismatch(inputs, evidence):
        return None
    if not record.deadline_renewed:
        return restart_again(f, "the validator found the GPUs divided otherwise than asked")
    cause = "the validator found the GPUs divided otherwise than asked"
    undivided = replace(f, record=replace(record, mig_failed=cause))
    return _release(inputs, undivided, evidence)


def _finish(inputs: ValidationInputs) -> NodeOutcome:
    """End the state by the evidence or the result of the op."""
    f, evidence = inputs.f, inputs.evidence
    if evidence is None:
        result = slots.slot_result(f.node, slots.VALIDATOR, inputs.command)
        if result is None or result.outcome == Ended.DONE:
            return None
        cause = f"validation: {result.code or 'failed'}: {result.message}".rstrip(": ")
        return fail(f, cause)
    if evidence.passed:
        if wait := _unsettled_runtime(f, evidence):
            return wait
        if mismatch(inputs, evidence) or not all_answered(inputs):
            return None
        return _resume_offering(f) or _release(inputs, f, evidence)
    for step in evidence.steps:
        if not step.passed:
            cause = f"{step.name}: {step.message}" if step.message else step.name
            return fail(f, f"validation: {cause}")
    return fail(f, "validation: a check did not pass")


def _unsettled_runtime(f: InFlightNode, evidence: Evidence) -> NodeOutcome:
    """Wait for a report of what the validator found: the driver agent reports every few seconds."""
    settled = evidence.at + limits.RUNTIME_REPORT
    if fits_runtime(evidence, f.node) or not evidence.at <= f.now.at < settled:
        return None
    detail = "the driver agent reports another configuration of the container runtime"
    return recheck_at(state_wait(f, WaitCode.VALIDATION, detail), settled, f.now)


def _resume_offering(f: InFlightNode) -> Step | None:
    """Let the GPUs be offered after a proof, unless the proof contains that they are."""
    idle = [f.idle(name) for name in slots.OFFERING if f.may_be_quiesced(name)]
    if not idle:
        return None
    because = "let the GPUs be offered to pods"
    wait = state_wait(f, WaitCode.VALIDATION, because)
    return Step(actions=tuple(idle), because=because, wait=wait)


def _release(inputs: ValidationInputs, f: InFlightNode, evidence: Evidence) -> NodeOutcome:
    return (
        _unlisted(inputs, evidence)
        or _stale_pods_wait(inputs)
        or confirm_by_pod(f, evidence)
        or finish_upgrade(f, with_pod_step(f, evidence))
    )


def _unlisted(inputs: ValidationInputs, evidence: Evidence) -> NodeOutcome:
    """Wait until the Node has what its kubelet can give to pods: a kubelet writes that later."""
    f, found = inputs.f, inputs.f.node.allocatable
    missing = [each for each in evidence.allocatable if found.get(each.name, 0) < each.count]
    if not missing:
        return None
    detail = (
        f"plugin: the kubelet can give {missing[0].count} {missing[0].name} to pods, and has"
        f" {found.get(missing[0].name, 0)} in the allocatable resources of the Node"
    )
    if f.is_overdue:
        return fail(f, f"validation: {detail}: see the log of the kubelet")
    return state_wait(f, WaitCode.VALIDATION, detail)


def _stale_pods_wait(inputs: ValidationInputs) -> Step | None:
    """Wait for current data: the driver pod may have ended since (docs/states.md#freshness)."""
    now, run = inputs.f.now, inputs.run
    fresh = limits.pods_freshness(now)
    if run is None or not run.pod_uid or not fresh.stale_reason:
        return None
    reason = f"{fresh.stale_reason} before the release"
    return Step(
        actions=(),
        because=reason,
        wait=wait_reasons.wait(WaitCode.STALE, reason, now),
        wake_at=fresh.wake_at,
        probes=fresh.probes,
    )


def _command_step(inputs: ValidationInputs) -> Step | None:
    """Resume the quiesced components, and ask the validator once the driver is ready."""
    f, commands = inputs.f, list[WriteSlot]()
    for name in f.node.components:
        if name not in _RESUMED or not f.may_be_quiesced(name):
            continue
        # No GPU is offered to pods before CUDA works.
        if name not in slots.OFFERING or _cuda_works(inputs):
            commands.append(f.idle(name))
    if slots.VALIDATOR in f.node.components and inputs.run is not None and inputs.ready:
        is_void = inputs.evidence is not None and all_answered(inputs)
        if inputs.command is None or is_void:
            commands.append(_new_validate(f, inputs.run))
    if not commands:
        return None
    because = ", ".join(f"{write.command.kind.value} to {write.component}" for write in commands)
    wait = state_wait(f, WaitCode.VALIDATION, "waiting for the validator to begin")
    return Step(actions=tuple(commands), because=f"send {because}", wait=wait)


def _cuda_works(inputs: ValidationInputs) -> bool:
    if inputs.command is None:
        return False
    progress = slots.command_progress(inputs.f.node.components[slots.VALIDATOR], inputs.command)
    return progress is not None and progress.phase == _PLUGIN_STEP


def _new_validate(f: InFlightNode, run: DriverRun) -> WriteSlot:
    build = f.build
    body = Validate(
        label=f.record.label,
        install_digest=build.install_digest if build is not None else "",
        pod_uid=run.pod_uid,
        container_id=run.container_id,
        started=run.started if run.pod_uid else 0.0,
        failed_gpus=f.record.failed_gpus or (),
        plugin=slots.PLUGIN in f.node.components,
    )
    deadline = f.deadline or f.now.at + limits.VALIDATION
    return f.command(slots.VALIDATOR, body, deadline)


def _progress_text(inputs: ValidationInputs) -> str:
    validator = inputs.f.node.components.get(slots.VALIDATOR)
    if validator is None:
        return "no validator is deployed to this node"
    progress = None if inputs.command is None else slots.command_progress(validator, inputs.command)
    if progress is not None:
        return f"{progress.phase}: {progress.detail}" if progress.detail else progress.phase
    if validator.is_silent(inputs.f.now.at):
        return "the validator has stopped sending heartbeats"
    refused = slots.refusal_text(validator, inputs.command)
    return f"the validator {refused}" if refused else "the validator has not begun"
