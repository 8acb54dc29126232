"""The step of a node under an upgrade lease: the states of docs/states.md#upgrade, in their order.

Each function waits in its state, and writes the next one when nothing is left to wait for. What
comes between is handled before: commands of an earlier leader, a failure that has begun, a reboot,
and, until something irreversible was done, whatever makes the change unwanted.
"""

from collections.abc import Callable, Mapping
from typing import Final

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout import slots, wait_reasons
from libs.rollout.decision import NodeOutcome, Step
from libs.rollout.in_flight.driver_restart import pod_restart
from libs.rollout.in_flight.eviction import drain, pod_deletion, wait_for_jobs
from libs.rollout.in_flight.failure import fail, is_failing
from libs.rollout.in_flight.in_flight_node import InFlightNode, in_flight_node
from libs.rollout.in_flight.interruptions import handle_interruption, handle_reboot
from libs.rollout.in_flight.validation import validation
from libs.rollout.node_case import NodeCase

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
