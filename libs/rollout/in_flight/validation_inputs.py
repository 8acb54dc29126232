"""What the state of a validation is decided on: the driver's run, the op for it, and its evidence.

docs/invariants.md#i3
"""

import msgspec

from libs.contracts.commands import Command, CommandKind, Idle, Validate
from libs.contracts.reports import Evidence
from libs.policy.wanted import InstallMethod
from libs.rollout import slots
from libs.rollout.in_flight.driver_restart import installs_on_host
from libs.rollout.in_flight.in_flight_node import InFlightNode
from libs.rollout.node_driver import START_TOLERANCE, DriverRun, covers_run, fits_runtime


class ValidationInputs(msgspec.Struct, frozen=True):
    """The inputs of the validation state."""

    f: InFlightNode
    run: DriverRun | None
    """The running driver, ready or not."""
    command: Command | None
    """The op in the validator's slot, if it is for this run."""
    evidence: Evidence | None

    @property
    def ready(self) -> bool:
        return self.run is not None and self.run.ready and self.f.node.loaded is not None


def current_run(f: InFlightNode) -> DriverRun | None:
    """Return the driver run of this operation, whatever method the policy has now."""
    pod = f.new_pod
    if pod is not None:
        if pod.started is None:
            return None
        return DriverRun(
            instance=pod.instance,
            started=pod.started,
            pod_uid=pod.uid,
            container_id=pod.container_id,
            ready=pod.ready,
        )
    loaded = f.node.loaded
    if loaded is None or not (installs_on_host(f) or f.pool.method is InstallMethod.PRE_INSTALLED):
        return None
    return DriverRun(instance=f"load/{loaded.loaded_at}", started=loaded.loaded_at)


def validate_command(f: InFlightNode, run: DriverRun | None) -> Command | None:
    """Return the op in the validator's slot if it is of this boot, this state and this run."""
    command = f.command_of_boot(slots.VALIDATOR, CommandKind.VALIDATE)
    if command is None:
        return None
    if f.record.deadline is not None and command.deadline < f.record.deadline:
        return None
    body = command.open()
    if not isinstance(body, Validate) or body.label != f.record.label:
        return None
    if body.plugin and slots.PLUGIN not in f.node.components:
        return None
    return command if run is None or _is_for(body, run) else None


def _is_for(body: Validate, run: DriverRun) -> bool:
    if body.pod_uid != run.pod_uid or body.container_id != run.container_id:
        return False
    return not run.pod_uid or abs(body.started - run.started) < START_TOLERANCE


def is_of_lease(f: InFlightNode, evidence: Evidence, command: Command | None) -> bool:
    """Whether the evidence is of an op under this lease."""
    if evidence.token != f.record.token:
        return False
    if command is not None:
        return evidence.op == command.op
    idle = f.held_command(slots.VALIDATOR, CommandKind.IDLE)
    if idle is None or evidence.op >= idle.op:
        return False
    body = idle.open()
    proven = body.proven if isinstance(body, Idle) else None
    return proven is not None and proven.label == evidence.label


def mismatch(inputs: ValidationInputs, evidence: Evidence) -> str:
    """Return what of the evidence does not fit the node now; empty: it proves what runs."""
    node, label = inputs.f.node, inputs.f.record.label
    if evidence.node_uid != node.uid:
        return f"the evidence is for node uid {evidence.node_uid}"
    if evidence.boot_id != node.boot_id:
        return f"the evidence is for boot {evidence.boot_id}"
    if evidence.kernel != node.kernel:
        return f"the evidence is for kernel {evidence.kernel}"
    if evidence.label != label or node.driver_label != label:
        return f"the evidence is for driver label {evidence.label}"
    if inputs.run is None or not inputs.ready:
        return "the driver is not running any more"
    if not covers_run(evidence, inputs.run):
        return "the evidence is for another run of the driver"
    if not fits_runtime(evidence, node):
        return "the evidence is for another configuration of the container runtime"
    return ""


def all_answered(inputs: ValidationInputs) -> bool:
    """Whether every command that changes the node is answered."""
    node = inputs.f.node
    kinds = CommandKind.SWAP, CommandKind.INSTALL, CommandKind.MIG
    change = inputs.f.held_command(slots.DRIVER, *kinds)
    pending = [(slots.DRIVER, change), (slots.VALIDATOR, inputs.command)]
    return all(
        command is None or slots.slot_result(node, name, command) is not None
        for name, command in pending
    )
