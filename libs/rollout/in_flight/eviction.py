"""Step 4: pods leave the node, before components release the GPU devices.

Pods without GPUs leave only where drain is on (docs/states.md#upgrade, #limits).
"""

from collections.abc import Iterable
from functools import partial

import msgspec

from libs.contracts.node import UpgradeState
from libs.contracts.waits import ITSELF, POD_OWNERS, WaitCode
from libs.contracts.words import first_few
from libs.policy.kinds.strategy import OnEvictionTimeout, OnJobTimeout
from libs.rollout import limits, slots
from libs.rollout.decision import EvictPods, NodeOutcome, PodRef, Step, Wait
from libs.rollout.in_flight.failure import fail
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    enter_state,
    state_wait,
    write_under_lease,
)
from libs.rollout.in_flight.lease_end import release
from libs.rollout.in_flight.quiesce import quiesce
from libs.rollout.in_flight.start import start
from libs.rollout.node_writes import NodeChange
from libs.rollout.views.machine import EvictionExemption, WorkloadPod


class _Pods(msgspec.Struct, frozen=True):
    """The pods that have to leave in this state, by what can be done about them."""

    evicted: tuple[WorkloadPod, ...]
    forced: tuple[WorkloadPod, ...]
    """The policy does not allow their eviction; deletion by force would remove them."""
    stuck: tuple[WorkloadPod, ...]
    """They would be created again at once."""
    operands: tuple[WorkloadPod, ...]
    """They leave when their operand is paused."""
    unknown: tuple[WorkloadPod, ...]
    """They may have GPUs by a resource claim that is not known yet."""

    @property
    def is_empty(self) -> bool:
        return not (self.evicted or self.forced or self.stuck or self.operands or self.unknown)


def restore_cordon(f: InFlightNode) -> Step | None:
    """Restore a removed cordon: without it new pods would replace the evicted ones."""
    if f.node.cordoned or not f.needs_cordon:
        return None
    because = "the node was uncordoned during its upgrade: cordoned again"
    return write_under_lease(
        f, NodeChange(because=because, record=f.record, initially_cordoned=False)
    )


def evict_pods(f: InFlightNode) -> NodeOutcome:
    """Remove the pods of this state from the node; None: no such pod is left."""
    recordon = restore_cordon(f)
    if recordon is not None:
        return recordon
    if f.node.pods is None:
        if f.is_overdue:
            return _time_out(f, "the pods of the node could not be listed", None)
        return state_wait(
            f, WaitCode.EVICTION, "the pods of the node are not listed yet", who=ITSELF
        )
    pods = _classified(f, f.node.pods)
    if pods.is_empty:
        return None
    if f.is_overdue:
        return _time_out(f, _describe(pods), pods)
    return _evict(f, pods.evicted, _wait(f, pods))


def _classified(f: InFlightNode, pods: Iterable[WorkloadPod]) -> _Pods:
    upgrade = f.pool.upgrade
    deletion = upgrade.gpu_pod_deletion or upgrade.pod_deletion
    drain = upgrade.drain
    draining = f.record.state == UpgradeState.DRAIN_REQUIRED
    evicted: list[WorkloadPod] = []
    forced: list[WorkloadPod] = []
    stuck: list[WorkloadPod] = []
    operands: list[WorkloadPod] = []
    unknown: list[WorkloadPod] = []
    for pod in pods:
        if pod.exemption is EvictionExemption.OPERAND:
            operands.append(pod)
        elif pod.may_hold_gpus and not (drain.enable and pod.drained):
            unknown.append(pod)
        elif pod.gpu and pod.exemption in (EvictionExemption.DAEMON_SET, EvictionExemption.MIRROR):
            stuck.append(pod)
        elif pod.exemption is EvictionExemption.NONE and (pod.gpu or (draining and pod.drained)):
            by_deletion = pod.gpu and pod.is_evictable(deletion)
            by_drain = drain.enable and pod.drained and pod.is_evictable(drain)
            if by_deletion or (draining and by_drain):
                evicted.append(pod)
            elif not by_drain:
                forced.append(pod)
    return _Pods(tuple(evicted), tuple(forced), tuple(stuck), tuple(operands), tuple(unknown))


def _evict(
    f: InFlightNode, wanted: tuple[WorkloadPod, ...], wait: Wait, *, by_force: bool = False
) -> NodeOutcome:
    """Start the eviction job for these pods, unless it is already running."""
    present = {pod.uid for pod in f.node.pods or ()}
    evicting = {eviction.uid for eviction in f.node.evictions if eviction.uid in present}
    refs = tuple(
        PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        for pod in wanted
        if by_force or pod.uid in evicting or not pod.deleting
    )
    all_forced = all(eviction.by_force for eviction in f.node.evictions if eviction.uid in present)
    if {ref.uid for ref in refs} == evicting and (not by_force or all_forced):
        return wait
    verb = "delete" if by_force else "evict"
    because = f"{verb} pods: {first_few(pod.display_name for pod in wanted)}"
    if not wanted:
        because = "cancel evictions: the remaining pods may stay"
    return Step(actions=(EvictPods(pods=refs, by_force=by_force),), because=because, wait=wait)


def _wait(f: InFlightNode, pods: _Pods, until: float | None = None) -> Wait:
    evictions = [
        (pod.display_name, eviction)
        for eviction in f.node.evictions
        for pod in pods.evicted
        if eviction.uid == pod.uid
    ]
    if refused := [f"{name}: {each.refused}" for name, each in evictions if each.refused]:
        ends = "" if f.deadline is None or until is not None else _at_limit(f)
        detail = f"eviction refused by a disruption budget: {first_few(refused)}{ends}"
        return state_wait(f, WaitCode.PDB, detail, until=until)
    if failed := [f"{name}: {each.failed}" for name, each in evictions if each.failed]:
        return state_wait(f, WaitCode.REFUSED, f"evictions fail: {first_few(failed)}", until=until)
    if pods.evicted or pods.forced or pods.stuck or pods.unknown:
        detail = f"waiting for pods to leave: {_describe(pods)}"
        who = POD_OWNERS if pods.forced or pods.stuck else None
        return state_wait(f, WaitCode.EVICTION, detail, who=who, until=until)
    return state_wait(
        f,
        WaitCode.OPERANDS,
        f"waiting for operand pods to leave: "
        f"{first_few(pod.display_name for pod in pods.operands)}",
        until=until,
    )


def _at_limit(f: InFlightNode) -> str:
    """Return what becomes of pods that are still there when the time for evictions ends."""
    match f.pool.strategy.on_eviction_timeout:
        case OnEvictionTimeout.RELEASE:
            return "; at the limit the node is released unchanged, and tried again later"
        case OnEvictionTimeout.FORCE_DELETE:
            return "; at the limit the pods are deleted by force"
        case _:
            return "; at the limit the upgrade of the node fails, and the pods stay"


def _describe(pods: _Pods) -> str:
    """Name all pods, with what keeps those that cannot be evicted."""
    evicted = [
        pod.display_name + (" (terminating)" if pod.deleting else "") for pod in pods.evicted
    ]
    forced = [f"{pod.display_name} ({_obstacle(pod)})" for pod in pods.forced]
    stuck = [f"{pod.display_name} ({pod.exemption.value} pod with GPUs)" for pod in pods.stuck]
    operands = [pod.display_name for pod in pods.operands]
    unknown = [f"{pod.display_name} (its resource claims are not known)" for pod in pods.unknown]
    return first_few([*evicted, *forced, *stuck, *operands, *unknown])


def _obstacle(pod: WorkloadPod) -> str:
    return "no controller, and force is off" if pod.bare else "emptyDir, and deleteEmptyDir is off"


def _time_out(f: InFlightNode, description: str, pods: _Pods | None) -> NodeOutcome:
    """End the state by the strategy after its limit."""
    reason = f"eviction: {description}"
    match f.pool.strategy.on_eviction_timeout:
        case OnEvictionTimeout.RELEASE:
            return release(f, reason, back_off=True)
        case OnEvictionTimeout.FORCE_DELETE if pods is not None:
            return _force(f, pods, reason)
        case _:
            return fail(f, reason)


def _force(f: InFlightNode, pods: _Pods, reason: str) -> NodeOutcome:
    force_deadline = (f.deadline or f.now.at) + limits.FORCED
    if limits.is_past(force_deadline, f.now):
        return fail(f, f"{reason}; deletion by force did not finish in time either")
    return _evict(f, pods.evicted + pods.forced, _wait(f, pods, force_deadline), by_force=True)


def wait_for_jobs(f: InFlightNode) -> NodeOutcome:
    recordon = restore_cordon(f)
    if recordon is not None:
        return recordon
    job_pods = None if f.node.pods is None else [pod.display_name for pod in f.node.pods if pod.job]
    if job_pods is not None and not job_pods:
        return _start_eviction(f, "no job is left: evict GPU pods")
    pods = "the pods of the node are not listed yet" if job_pods is None else first_few(job_pods)
    if not f.is_overdue:
        return state_wait(f, WaitCode.JOBS, f"waiting for jobs to finish: {pods}")
    if f.pool.strategy.on_job_timeout is OnJobTimeout.DEFER:
        return release(f, f"jobs: {pods}", back_off=True)
    return _start_eviction(f, f"jobs did not finish in time ({pods}): evict GPU pods")


def _start_eviction(f: InFlightNode, because: str) -> Step:
    return enter_state(f, UpgradeState.POD_DELETION_REQUIRED, because, paused=True)


def pod_deletion(f: InFlightNode) -> NodeOutcome:
    return evict_pods(f) or _enter_drain(f) or _free_devices(f) or start(f)


def drain(f: InFlightNode) -> NodeOutcome:
    return evict_pods(f) or _free_devices(f) or start(f)


def _enter_drain(f: InFlightNode) -> NodeOutcome:
    left = f.node.pods or () if f.pool.upgrade.drain.enable else ()
    if not any(pod.drained and pod.exemption is EvictionExemption.NONE for pod in left):
        return None
    return enter_state(f, UpgradeState.DRAIN_REQUIRED, "no GPU pod is left: drain the node")


def _free_devices(f: InFlightNode) -> NodeOutcome:
    return quiesce(f, slots.QUIESCED, partial(release, back_off=True))
