"""The GPUs of a node in flight are divided, after its driver is ready and before it is validated.

docs/states.md#mig. A failure to divide them is no failure of the driver: the node is validated all
the same, and returns with the state `failed` of its MIG configuration.
"""

from typing import NamedTuple

from msgspec.structs import replace

from libs.contracts.commands import REBOOT_REQUIRED, Command, CommandKind, Idle, Mig, describe
from libs.contracts.node import MigState, Operation, UpgradeState
from libs.contracts.reports import Outcome as Ended
from libs.contracts.reports import RefusalCode, Result
from libs.contracts.waits import ITSELF, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout import limits, slots
from libs.rollout.decision import NodeOutcome, Step
from libs.rollout.in_flight.failure import fail
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    recheck_at,
    state_wait,
    write_under_lease,
)
from libs.rollout.in_flight.quiesce import quiesce
from libs.rollout.node_driver import passed_evidence, waits_at_gate
from libs.rollout.node_writes import NodeChange
from libs.rollout.views.machine import WantedMig

_NOT_DIVIDED = frozenset({Operation.VALIDATE, Operation.REMOVE, Operation.RESTART})
"""Operations that leave the GPUs divided as they are: no pod was evicted."""


def wanted_division(f: InFlightNode) -> WantedMig | None:
    """Return how this operation divides the GPUs; None: it does not."""
    wanted = f.node.mig
    if wanted is None or wanted.error or f.record.operation in _NOT_DIVIDED:
        return None
    return wanted if wanted.digest else None


def division_command(f: InFlightNode) -> Command | None:
    """Return the op from the slot, if it is of this boot and this start of the driver."""
    command = f.command_of_boot(slots.DRIVER, CommandKind.MIG)
    if command is None:
        return None
    return command if command.deadline >= f.record.since + limits.MIG else None


def divide(f: InFlightNode) -> NodeOutcome:
    """Divide the GPUs as wanted; None: that has ended, or nothing is wanted."""
    wanted, driver = wanted_division(f), f.node.components.get(slots.DRIVER)
    if wanted is None or driver is None or division_failure(f):
        return None
    command = division_command(f)
    if command is not None and not _is_for(command, wanted):
        command = None
    result = None if command is None else slots.command_result(driver, command)
    if result is None:
        return _free_devices(f) or (_send(f, wanted) if command is None else _await(f, command))
    return _await_reboot(f, result) if result.outcome != Ended.DONE else None


def _free_devices(f: InFlightNode) -> NodeOutcome:
    """Make the components release the devices; the driver names those that do not in time."""
    return quiesce(f, slots.QUIESCED, lambda _f, _cause: None)


def _is_for(command: Command, wanted: WantedMig) -> bool:
    body = command.open()
    return isinstance(body, Mig) and body.digest == wanted.digest


def _send(f: InFlightNode, wanted: WantedMig) -> NodeOutcome:
    if f.bus_is_down:
        return bus_wait(f)
    body = Mig(
        config=wanted.config, digest=wanted.digest, gpus=wanted.gpus, reboot=wanted.may_reboot
    )
    # Not before the state, as for a swap: a command that seems older than its state is sent again.
    deadline = max(f.now.at, f.record.since) + limits.MIG
    sent = f.command(slots.DRIVER, body, deadline)
    detail = f"waiting for the driver agent to begin to divide the GPUs as {wanted.config}"
    task = describe(sent.command.kind, sent.command.order)
    because = f"tell the driver agent to {task}: {wanted.config}"
    return Step(
        actions=(sent,),
        because=because,
        wait=state_wait(f, WaitCode.MIG, detail, who=ITSELF),
    )


def _await(f: InFlightNode, command: Command) -> NodeOutcome:
    if f.bus_is_down:
        return bus_wait(f)
    driver = f.node.components[slots.DRIVER]
    if driver.is_silent(f.now.at):
        detail = "the driver agent has stopped sending heartbeats"
        return state_wait(f, WaitCode.MIG, detail, who="an administrator of the driver agent")
    wait = state_wait(f, WaitCode.MIG, _progress_text(f, command), who=ITSELF)
    return recheck_at(wait, command.deadline, f.now)


def _await_reboot(f: InFlightNode, result: Result) -> NodeOutcome:
    """Wait for the reboot that completes the geometry: no agent reboots a machine."""
    if f.node.mig_state != MigState.REBOOTING or f.record.deadline is not None:
        because = "the GPUs are divided only after a reboot of the node"
        record = replace(f.record, deadline=None, deadline_renewed=False)
        change = NodeChange(because=because, record=record, mig_state=MigState.REBOOTING)
        return write_under_lease(f, change)
    detail = f"the node must be rebooted, which Sluice does not do: {result.message}"
    return state_wait(f, WaitCode.REBOOT, detail)


def division_failure(f: InFlightNode) -> str:
    """Return why the GPUs could not be divided as wanted; empty: they were, or may still be."""
    wanted, driver = wanted_division(f), f.node.components.get(slots.DRIVER)
    if wanted is None or driver is None:
        return ""
    if CommandKind.MIG.value not in driver.capabilities and driver.capabilities:
        return "the driver agent does not support mig: upgrade the agent"
    command = division_command(f)
    if command is None or not _is_for(command, wanted):
        return ""
    refusal = driver.refusal
    if refusal is not None and slots.is_same_op(refusal, command):
        refused = refusal.code == RefusalCode.UNKNOWN_KIND
        return slots.refusal_text(driver, command) if refused else ""
    result = slots.command_result(driver, command)
    if result is None or result.outcome == Ended.DONE:
        return ""
    if result.code == REBOOT_REQUIRED and wanted.may_reboot and not _was_rebooted(f):
        return ""
    return f"{result.code or 'mig'}: {result.message or 'no reason was reported'}"


def _was_rebooted(f: InFlightNode) -> bool:
    """Whether the node was rebooted for this geometry: the state has a time limit again."""
    return f.node.mig_state == MigState.REBOOTING and f.record.deadline is not None


class Division(NamedTuple):
    """How the division of the GPUs ended, as the record keeps it."""

    digest: str = ""
    failure: str = ""


def noted_division(f: InFlightNode) -> Division:
    wanted = wanted_division(f)
    return Division() if wanted is None else Division(wanted.digest, division_failure(f))


def redivide(f: InFlightNode) -> NodeOutcome:
    """Divide the GPUs under the driver that runs; None: that has ended."""
    if f.is_overdue:
        command = division_command(f)
        text = "the driver is not ready" if command is None else _progress_text(f, command)
        return fail(f, f"mig: {text}")
    if not _driver_is_ready(f):
        return _await_driver(f)
    return divide(f)


def _driver_is_ready(f: InFlightNode) -> bool:
    if f.node.loaded is None:
        return False
    if f.pool.method is not InstallMethod.CONTAINER:
        return True
    pod = f.new_pod
    return pod is not None and pod.ready and pod.started is not None


def _await_driver(f: InFlightNode) -> NodeOutcome:
    """Let the proven driver come back after a reboot: `idle` with the proof opens its gate."""
    evidence = passed_evidence(f.node, f.record)
    if evidence is None or evidence.kernel != f.node.kernel:
        kernel = f.node.kernel
        return fail(f, f"driver-start: the driver is not proven for kernel {kernel} of this boot")
    if f.bus_is_down:
        return bus_wait(f)
    proven = slots.proven_by(evidence)
    slot = f.node.components[slots.DRIVER].slot if slots.DRIVER in f.node.components else None
    is_shut_out = waits_at_gate(f.new_pod, f.node.gate) or f.pool.method is not (
        InstallMethod.CONTAINER
    )
    detail = "waiting for the driver to be ready, to divide its GPUs"
    wait = state_wait(f, WaitCode.DRIVER_START, detail)
    if slot is None or not is_shut_out:
        return wait
    is_sent = slot.boot_id == f.node.boot_id and slot.token == f.record.token
    if is_sent and slot.open() == Idle(proven=proven):
        return wait
    idle = f.idle(slots.DRIVER, proven)
    return Step(actions=(idle,), because="let the proven driver load", wait=wait)


def is_redivided(f: InFlightNode) -> bool:
    """Whether only the GPUs are divided, under a driver that stays."""
    started = f.record.state == UpgradeState.POD_RESTART_REQUIRED
    return f.record.operation is Operation.MIG and started


def _progress_text(f: InFlightNode, command: Command) -> str:
    driver = f.node.components[slots.DRIVER]
    progress = slots.command_progress(driver, command)
    if progress is not None:
        return progress.detail or progress.phase
    refused = slots.refusal_text(driver, command)
    if refused:
        return f"the driver agent {refused}"
    return f"the driver agent has not begun to {describe(command.kind, command.order)}"
