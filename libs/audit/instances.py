"""I3: the driver that the evidence names ran on that node, under that kernel, and still runs.

The Pods of the API server show each run of a driver's container. A driver without a pod is loaded
by the node's agent or came with the machine: no revision shows it.
"""

from collections.abc import Iterator
from typing import Final

from libs.audit.case import AuditCase
from libs.audit.clocks import SKEW_SECONDS
from libs.audit.pods import PodHistory
from libs.audit.timeline import NodeChange
from libs.contracts.reports import Evidence

PODS_SECONDS: Final = 10.0
"""A return is decided on Pods that are no older (docs/states.md#freshness)."""

ON_THE_WAY_SECONDS: Final = 60.0
"""The API server may carry out a write that it did not answer so long after it was decided
(docs/states.md#reconcile)."""

UNNOTICED_SECONDS: Final = PODS_SECONDS + SKEW_SECONDS
"""A driver may end so shortly before the return is decided that the decision does not see it."""


def instance_problems(case: AuditCase, change: NodeChange, evidence: Evidence) -> Iterator[str]:
    """Return what of the evidence contradicts the Node and the Pods."""
    kernel = change.before.kernel
    if kernel and evidence.kernel != kernel:
        yield f"its evidence is of kernel {evidence.kernel}, but the node runs {kernel}"
    if evidence.at and evidence.driver_started > evidence.at + case.clocks.skew(change.node.uid):
        yield (
            f"its evidence is of {evidence.at:.0f}, before its driver started at"
            f" {evidence.driver_started:.0f}"
        )
    if not evidence.driver_pod_uid or not case.timeline.pods:
        return  # without any Pod, the Pods are a missing source
    pod = case.timeline.pods.get(evidence.driver_pod_uid)
    if pod is None:
        yield f"its evidence names the driver pod {evidence.driver_pod_uid}, which never was"
    else:
        yield from _pod_problems(case, change, evidence, pod)


def _pod_problems(
    case: AuditCase, change: NodeChange, evidence: Evidence, pod: PodHistory
) -> Iterator[str]:
    last = next((state for _, state in reversed(list(pod.items())) if state.exists), None)
    if last and last.node not in ("", change.node.name):
        yield f"the driver pod {pod.name} of its evidence is of node {last.node}"
    if last and last.label not in ("", evidence.label):
        yield f"the driver pod {pod.name} of its evidence has label {last.label!r}"
    started = evidence.driver_started
    if not any(abs(shown - started) <= SKEW_SECONDS for shown in pod.starts):
        yield f"the driver of its evidence never started at {started:.0f} in pod {pod.name}"
        return
    ended = _ended_at(case, change, pod, started)
    if ended is not None and _decided_at(change) - ended > UNNOTICED_SECONDS:
        late = change.revision.time - ended
        yield f"the driver of its evidence in pod {pod.name} had ended {late:.0f} s before"


def _decided_at(change: NodeChange) -> float:
    """Return when the return was decided, by its record, but not long before the write."""
    written, record = change.revision.time, change.after.record
    if record is None or not record.since:
        return written
    return max(record.since, written - ON_THE_WAY_SECONDS)


def _ended_at(case: AuditCase, change: NodeChange, pod: PodHistory, started: float) -> float | None:
    """Return when the run ended, or ceased to be ready; None if it lasted until the write."""
    ended: int | None = None
    for position, state in pod.between(-2, change.position - 1):
        if state.runs(started, SKEW_SECONDS):
            ended = None
        elif ended is None:
            ended = position
    return None if ended is None else case.timeline.time_of(ended)
