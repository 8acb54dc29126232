"""The step of a node under an upgrade lease: interruptions and reboots, then its state.

docs/states.md#v-edited, #v-halt, #v-reboot
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout import limits, slots, wait_reasons
from libs.rollout.decision import NodeOutcome, Step
from libs.rollout.in_flight.driver_restart import booted_label, pod_restart, restart_again
from libs.rollout.in_flight.eviction import drain, pod_deletion, wait_for_jobs
from libs.rollout.in_flight.failure import fail, is_failing
from libs.rollout.in_flight.in_flight_node import InFlightNode, in_flight_node, write_under_lease
from libs.rollout.in_flight.lease_end import (
    AGENT_SILENT_REASON,
    NOT_READY_REASON,
    is_releasing,
    release,
)
from libs.rollout.in_flight.validation import validation
from libs.rollout.node_case import NodeCase
from libs.rollout.node_writes import NodeChange, record_in_state
from libs.rollout.persons_lease import claimed_by
from libs.rollout.views.pool import Build, Readiness

STATES: Final[Mapping[str, Callable[[InFlightNode], NodeOutcome]]] = {
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: wait_for_jobs,
    UpgradeState.POD_DELETION_REQUIRED: pod_deletion,
    UpgradeState.DRAIN_REQUIRED: drain,
    UpgradeState.POD_RESTART_REQUIRED: pod_restart,
    UpgradeState.VALIDATION_REQUIRED: validation,
}


def step_in_flight(case: NodeCase) -> NodeOutcome:
    """Return what to do now about a node under an upgrade lease, or what it waits for."""
    record, lease = case.record, case.lease
    if record is None or lease is None or record.state not in STATES:
        detail = "the node has an upgrade lease, but no record of what is in progress"
        return wait_reasons.wait(WaitCode.RECORD_LOST, detail, case.now)
    f = in_flight_node(case, record, lease)
    if is_failing(f):
        return _renew_epochs(f) or fail(f, record.cause)
    irreversible = record.started or record.operation is Operation.VALIDATE
    return (
        _renew_epochs(f)
        or (handle_reboot(f) if irreversible else handle_interruption(f))
        or STATES[record.state](f)
    )


def _renew_epochs(f: InFlightNode) -> Step | None:
    """Write our epoch into the slots before any other effect (docs/states.md#leading).

    Otherwise a command of the leader before could still be carried out after ours.
    """
    actions = () if f.bus_is_down else slots.renewed_epochs(f.node, f.now)
    if not actions:
        return None
    return Step(
        actions=actions, because=f"renew commands of an earlier leader under epoch {f.now.epoch}"
    )


def handle_interruption(f: InFlightNode) -> NodeOutcome:
    """Release or retarget a node that has not started; None: its upgrade continues.

    Whoever takes the node, or no longer wants the change, comes before the limits: a release for
    their sake needs no back-off.
    """
    reason = _unwanted_reason(f)
    if reason:
        return release(f, reason, back_off=False)
    if is_releasing(f):
        return release(f, _exceeded_limit(f), back_off=True)
    if f.record.operation in (Operation.REMOVE, Operation.MIG):
        return None
    return _retarget(f) or _follow_variant(f)


def _unwanted_reason(f: InFlightNode) -> str:
    """Return why the operation is no longer wanted, though nothing failed; empty: it is wanted."""
    if owner := claimed_by(f.node):
        return f"{owner} takes the node"
    if f.record.operation is Operation.MIG:
        return _undivided_reason(f)
    if f.record.operation is not Operation.REMOVE:
        return f.pool.constraints.to_release.get(f.node.uid, "") or _pointless_reason(f)
    unwanted = f.node.excluded or f.node.pool != f.record.pool or f.pool.gone
    if unwanted or f.pool.method is InstallMethod.PRE_INSTALLED:
        return ""
    if f.pool.build(f.pool.target, f.node.variant) is None:
        return ""
    return "the policy wants a driver on the node again"


def _undivided_reason(f: InFlightNode) -> str:
    """Return why the GPUs need not, or cannot, be divided otherwise any more."""
    wanted = f.node.mig
    if wanted is None or f.node.excluded or f.node.pool != f.record.pool:
        return "no other division of the GPUs is wanted any more"
    return wanted.error or ("the GPUs are divided as wanted" if wanted.applied else "")


def _pointless_reason(f: InFlightNode) -> str:
    """Return why the upgrade has no use: its target has no build, or runs already."""
    target, build = _granted_target(f)
    if not f.node.variant or not (target != f.record.target or is_releasing(f)):
        return ""
    if build is None or build.readiness is Readiness.MISSING:
        return f"target {target} has no driver build for the node"
    runs = f.record.evidence is not None and f.record.evidence.label == f.node.driver_label
    if target != f.record.target and runs and build.label == f.node.driver_label:
        return "the policy wants the running driver again"
    return ""


def _granted_target(f: InFlightNode) -> tuple[str, Build | None]:
    """Return the target of the node's entry in flight, and the build for it."""
    entry = f.pool.constraints.in_flight.get(f.node.uid)
    target = f.record.target if entry is None else entry.target
    return target, f.pool.build(target, f.node.variant)


def _exceeded_limit(f: InFlightNode) -> str:
    """Return which limit caused the release; the record does not store it."""
    if f.is_overdue and f.record.state == UpgradeState.WAIT_FOR_JOBS_REQUIRED:
        return "jobs: they did not finish in time"
    if f.is_overdue and f.node.pods:
        return "eviction: pods did not leave in time"
    driver = f.node.components.get(slots.DRIVER)
    if driver is None or driver.is_silent(f.now.at):
        return AGENT_SILENT_REASON
    if f.is_overdue and not f.node.ready:
        return NOT_READY_REASON
    return "quiesce: a component did not release the GPU devices in time"


def _retarget(f: InFlightNode) -> Step | None:
    """Change the record to the target that the entry in flight has since an edit of the policy."""
    entry = f.pool.constraints.in_flight.get(f.node.uid)
    target, build = _granted_target(f)
    if entry is None or build is None or target == f.record.target:
        return None
    record = replace(
        f.record,
        target=target,
        label=build.label,
        outside=entry.outside,
        attempt=1,
        back_off_until=0.0,
        back_off_seconds=0.0,
    )
    because = f"the policy was edited: the target is now {target}"
    return write_under_lease(f, NodeChange(because=because, record=record))


def _follow_variant(f: InFlightNode) -> Step | None:
    """Change the label after a reboot into another kernel or system, which needs another build."""
    build = f.build
    if build is None or build.label == f.record.label:
        return None
    record = replace(f.record, label=build.label)
    because = f"the node now runs {f.node.variant}: it needs another build of the same target"
    return write_under_lease(f, NodeChange(because=because, record=record))


def handle_reboot(f: InFlightNode) -> Step | None:
    """Restart the state after a reboot, and its deadline once (docs/states.md#v-reboot)."""
    if f.node.boot_id == f.record.boot_id:
        return None
    if f.record.operation is Operation.VALIDATE:
        return _renew_deadline(f)
    if f.record.state == UpgradeState.VALIDATION_REQUIRED:
        return restart_again(
            f, "the node was rebooted: the driver must start and be validated again"
        )
    return _renew_deadline(f)


def _renew_deadline(f: InFlightNode) -> Step | None:
    label = booted_label(f)
    renewed = f.record.deadline_renewed and f.record.deadline is not None
    if renewed and label == f.record.label:
        return None
    state = UpgradeState(f.record.state)
    full = limits.deadline(state, f.pool, f.now)
    deadline = f.deadline if renewed else full
    record = record_in_state(
        f,
        state,
        f.record,
        label=label,
        deadline=deadline,
        deadline_renewed=True,
    )
    because = "the node was rebooted: the time limit of its state starts again, once"
    return write_under_lease(f, NodeChange(because=because, record=record, driver_label=label))
