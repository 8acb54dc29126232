"""Step 4: evict GPU pods and then, where drain is on, the other pods (docs/states.md#upgrade,
#limits).
"""

from collections.abc import Iterable

import msgspec

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import OnEvictionTimeout, OnJobTimeout
from libs.policy.kinds.upgrade_policy import PodDeletion
from libs.rollout import limits, slots
from libs.rollout.decision import EvictPods, NodeOutcome, PodRef, Step, Wait
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    enter_state,
    state_wait,
    was_uncordoned,
    write_record,
)
from libs.rollout.in_flight.lease_end import fail, release
from libs.rollout.in_flight.start import quiesce, start
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.wait_reasons import NO_ACTION_NEEDED, first_few


class _Pods(msgspec.Struct, frozen=True):
    """The pods that have to leave in this state, by what can be done about them."""

    evicted: tuple[WorkloadPod, ...]
    forced: tuple[WorkloadPod, ...]
    """The policy does not allow to evict them; deletion by force would."""
    stuck: tuple[WorkloadPod, ...]
    """They would be created again at once."""
    operands: tuple[WorkloadPod, ...]
    """They leave by a pause."""

    @property
    def none(self) -> bool:
        return not (self.evicted or self.forced or self.stuck or self.operands)


def restore_cordon(f: InFlightNode) -> Step | None:
    """Restore a removed cordon: without it pods would come as fast as they go."""
    if not was_uncordoned(f):
        return None
    because = "the node was uncordoned during its upgrade: cordoned again"
    return write_record(f, f.record, because, initially_cordoned=False)


def evict_pods(f: InFlightNode) -> NodeOutcome:
    """Get the pods of this state off the node; None: none is left."""
    again = restore_cordon(f)
    if again is not None:
        return again
    if f.node.pods is None:
        if f.is_overdue:
            return _overdue(f, "the pods of the node could not be listed", None)
        return state_wait(
            f, WaitCode.EVICTION, "the pods of the node are not listed yet", who=NO_ACTION_NEEDED
        )
    pods = _classified(f, f.node.pods)
    if pods.none:
        return None
    if f.is_overdue:
        return _overdue(f, _named(pods), pods)
    return _evict(f, pods.evicted, _wait(f, pods))


def needs_drain(f: InFlightNode) -> bool:
    draining = f.pool.upgrade.drain.enable
    return draining and any(_drained(pod) for pod in f.node.pods or ())


def _classified(f: InFlightNode, pods: Iterable[WorkloadPod]) -> _Pods:
    upgrade = f.pool.upgrade
    deletion = upgrade.gpu_pod_deletion or upgrade.pod_deletion
    drain = upgrade.drain
    draining = f.record.state == UpgradeState.DRAIN_REQUIRED
    evicted: list[WorkloadPod] = []
    forced: list[WorkloadPod] = []
    stuck: list[WorkloadPod] = []
    operands: list[WorkloadPod] = []
    for pod in pods:
        if pod.exemption is EvictionExemption.OPERAND:
            operands.append(pod)
        elif pod.gpu and pod.exemption in (EvictionExemption.DAEMON_SET, EvictionExemption.MIRROR):
            stuck.append(pod)
        elif pod.exemption is EvictionExemption.NONE and (pod.gpu or (draining and pod.drained)):
            by_deletion = pod.gpu and _allows(deletion, pod)
            by_drain = drain.enable and pod.drained and _allows(drain, pod)
            if by_deletion or (draining and by_drain):
                evicted.append(pod)
            elif not by_drain:
                forced.append(pod)
    return _Pods(tuple(evicted), tuple(forced), tuple(stuck), tuple(operands))


def _allows(rules: PodDeletion, pod: WorkloadPod) -> bool:
    return (rules.force or not pod.bare) and (rules.delete_empty_dir or not pod.empty_dir)


def _drained(pod: WorkloadPod) -> bool:
    return pod.drained and pod.exemption is EvictionExemption.NONE


def _evict(
    f: InFlightNode, wanted: tuple[WorkloadPod, ...], wait: Wait, *, by_force: bool = False
) -> NodeOutcome:
    """Start the eviction job for these pods, unless it is already running."""
    there = {pod.uid for pod in f.node.pods or ()}
    asked = {job.uid for job in f.node.evictions if job.uid in there}
    refs = tuple(
        PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        for pod in wanted
        if by_force or pod.uid in asked or not pod.deleting
    )
    forcing = all(job.by_force for job in f.node.evictions if job.uid in there)
    if {ref.uid for ref in refs} == asked and (not by_force or forcing):
        return wait
    how = "delete" if by_force else "evict"
    because = f"{how} pods: {first_few(pod.display_name for pod in wanted)}"
    if not wanted:
        because = "cancel evictions: the remaining pods may stay"
    return Step(actions=(EvictPods(pods=refs, by_force=by_force),), because=because, wait=wait)


def _wait(f: InFlightNode, pods: _Pods, until: float | None = None) -> Wait:
    refused = [
        f"{pod.display_name}: {job.refused}"
        for job in f.node.evictions
        for pod in pods.evicted
        if job.uid == pod.uid and job.refused
    ]
    if refused:
        return state_wait(
            f,
            WaitCode.PDB,
            f"eviction refused by a disruption budget: {first_few(refused)}",
            until=until,
        )
    if pods.evicted or pods.forced or pods.stuck:
        return state_wait(
            f, WaitCode.EVICTION, f"waiting for pods to leave: {_named(pods)}", until=until
        )
    return state_wait(
        f,
        WaitCode.OPERANDS,
        f"waiting for operand pods to leave: "
        f"{first_few(pod.display_name for pod in pods.operands)}",
        until=until,
    )


def _named(pods: _Pods) -> str:
    """Name all pods, with what keeps those that cannot be evicted."""
    evicted = [
        pod.display_name + (" (terminating)" if pod.deleting else "") for pod in pods.evicted
    ]
    forced = [f"{pod.display_name} ({_why_not(pod)})" for pod in pods.forced]
    stuck = [f"{pod.display_name} ({pod.exemption.value} pod with GPUs)" for pod in pods.stuck]
    operands = [pod.display_name for pod in pods.operands]
    return first_few([*evicted, *forced, *stuck, *operands])


def _why_not(pod: WorkloadPod) -> str:
    return "no controller, and force is off" if pod.bare else "emptyDir, and deleteEmptyDir is off"


def _overdue(f: InFlightNode, named: str, pods: _Pods | None) -> NodeOutcome:
    """End the state by the strategy after its limit."""
    cause = f"eviction: {named}"
    match f.pool.strategy.on_eviction_timeout:
        case OnEvictionTimeout.RELEASE:
            return release(f, cause, back_off=True)
        case OnEvictionTimeout.FORCE_DELETE if pods is not None:
            return _force(f, pods, cause)
        case _:
            return fail(f, cause)


def _force(f: InFlightNode, pods: _Pods, cause: str) -> NodeOutcome:
    last = (f.deadline or f.now.at) + limits.FORCED
    if limits.is_past(last, f.now):
        return fail(f, f"{cause}; deletion by force did not finish in time either")
    return _evict(f, pods.evicted + pods.forced, _wait(f, pods, last), by_force=True)


def wait_for_jobs(f: InFlightNode) -> NodeOutcome:
    again = restore_cordon(f)
    if again is not None:
        return again
    jobs = None if f.node.pods is None else [pod.display_name for pod in f.node.pods if pod.job]
    if jobs is not None and not jobs:
        return _start_eviction(f, "no job is left: evict GPU pods")
    shown = "the pods of the node are not listed yet" if jobs is None else first_few(jobs)
    if not f.is_overdue:
        return state_wait(f, WaitCode.JOBS, f"waiting for jobs to finish: {shown}")
    if f.pool.strategy.on_job_timeout is OnJobTimeout.DEFER:
        return release(f, f"jobs: {shown}", back_off=True)
    return _start_eviction(f, f"jobs did not finish in time ({shown}): evict GPU pods")


def _start_eviction(f: InFlightNode, because: str) -> Step:
    return enter_state(f, UpgradeState.POD_DELETION_REQUIRED, because, paused=True)


def pod_deletion(f: InFlightNode) -> NodeOutcome:
    held = evict_pods(f)
    if held is not None:
        return held
    if needs_drain(f):
        return enter_state(f, UpgradeState.DRAIN_REQUIRED, "no GPU pod is left: drain the node")
    return _quiesce_and_start(f)


def drain(f: InFlightNode) -> NodeOutcome:
    return evict_pods(f) or _quiesce_and_start(f)


def _quiesce_and_start(f: InFlightNode) -> NodeOutcome:
    return quiesce(f, slots.QUIESCED, _given_back) or start(f)


def _given_back(f: InFlightNode, why: str) -> NodeOutcome:
    return release(f, why, back_off=True)
