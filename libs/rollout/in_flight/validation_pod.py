"""A pod that asks for a GPU confirms a passed validation, where the policy wants that.

The driver service makes the pod that the record asks for, and says on the Node what became of it.
Both name the validation, so that a pod of an earlier one confirms nothing.
"""

from typing import Final

from msgspec.structs import replace

from libs.contracts.node import ValidationPod
from libs.contracts.reports import Evidence, ValidationStep
from libs.contracts.waits import WaitCode
from libs.rollout.decision import NodeOutcome
from libs.rollout.in_flight.failure import fail
from libs.rollout.in_flight.in_flight_node import InFlightNode, state_wait, write_under_lease
from libs.rollout.node_writes import NodeChange

STEP: Final = "workload"
"""The step that the pod is, in the evidence of the node's record."""


def confirm_by_pod(f: InFlightNode, evidence: Evidence) -> NodeOutcome:
    """Ask for the pod and wait for it; None: it has run, or none is needed."""
    if not needs_pod(f, evidence):
        return None
    order = str(evidence.order)
    if f.record.validation_pod != order:
        record = replace(f.record, validation_pod=order)
        because = "a pod that asks for a GPU has to confirm the validation"
        return write_under_lease(f, NodeChange(because=because, record=record))
    pod = _pod(f, evidence)
    if pod is not None and pod.passed:
        return None
    detail = pod.message if pod is not None else ""
    if f.is_overdue or (pod is not None and pod.passed is False):
        return fail(f, f"validation: {STEP}: {detail or 'no pod computed in time'}")
    text = "waiting for the pod that asks for a GPU"
    return state_wait(f, WaitCode.VALIDATION, f"{text}: {detail}" if detail else text)


def needs_pod(f: InFlightNode, evidence: Evidence) -> bool:
    """Whether a pod has to confirm the evidence. Pods that have GPUs already confirm it as well."""
    if not f.pool.validation_pod or not evidence.allocatable:
        return False
    pods = f.node.pods or ()
    return not any(pod.gpu and not pod.deleting and not pod.is_of_sluice for pod in pods)


def with_pod_step(f: InFlightNode, evidence: Evidence) -> Evidence:
    """Return the evidence with what the pod did as its last step."""
    pod = _pod(f, evidence)
    if pod is None or not pod.passed or not f.pool.validation_pod:
        return evidence
    step = ValidationStep(name=STEP, passed=True, message=pod.message)
    return replace(evidence, steps=(*evidence.steps, step))


def _pod(f: InFlightNode, evidence: Evidence) -> ValidationPod | None:
    """Return what became of the pod of this validation."""
    pod = f.node.validation_pod
    return pod if pod is not None and pod.is_of(f.node.uid, evidence.order) else None
