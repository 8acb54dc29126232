"""Step 4: pods leave, those with GPUs first and then, where drain is on, the others.

Which pods leave, which are left alone, and which cannot leave though they should, so that only the
limit ends the wait (docs/states.md#upgrade, #limits). Must not know what comes after.
"""

from collections.abc import Iterable

import msgspec

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import OnEvictionTimeout
from libs.policy.kinds.upgrades import PodDeletion
from libs.rollout import limits
from libs.rollout.decision import EvictPods, Outcome, PodRef, Step, Wait
from libs.rollout.underway.ending import fail, release
from libs.rollout.underway.flight import Flight, uncordoned, waits, write
from libs.rollout.views.machine import Shelter, WorkPod
from libs.rollout.waiting import NOBODY, few


class _Pods(msgspec.Struct, frozen=True):
    """The pods that hold up this state, by what can be done about them."""

    evicted: tuple[WorkPod, ...]
    """They are asked to leave."""
    forced: tuple[WorkPod, ...]
    """The policy does not let them be evicted; by force they would go."""
    stuck: tuple[WorkPod, ...]
    """They would be made anew at once."""
    operands: tuple[WorkPod, ...]
    """They leave by a pause."""

    @property
    def none(self) -> bool:
        """Whether nothing holds it up."""
        return not (self.evicted or self.forced or self.stuck or self.operands)


def recordoned(f: Flight) -> Step | None:
    """The cordon again, where somebody took it away: else pods would come as fast as they go."""
    if not uncordoned(f):
        return None
    because = "somebody uncordoned the node in the middle of its upgrade: cordoned again"
    return write(f, f.record, because, initially_cordoned=False)


def emptied(f: Flight) -> Outcome:
    """Get the pods of this state off the node; None: none is left."""
    again = recordoned(f)
    if again is not None:
        return again
    if f.node.pods is None:
        if f.overdue:
            return _overdue(f, "nobody could see the node's pods", None)
        return waits(f, WaitCode.EVICTION, "nobody has looked at the node's pods yet", who=NOBODY)
    pods = _sorted(f, f.node.pods)
    if pods.none:
        return None
    if f.overdue:
        return _overdue(f, _named(pods), pods)
    return _evict(f, pods.evicted, _wait(f, pods))


def to_drain(f: Flight) -> bool:
    """Whether the state for the other pods has any work in it."""
    draining = f.pool.upgrade.drain.enable
    return draining and any(_drained(pod) for pod in f.node.pods or ())


def _sorted(f: Flight, pods: Iterable[WorkPod]) -> _Pods:
    upgrade = f.pool.upgrade
    deletion = upgrade.gpu_pod_deletion or upgrade.pod_deletion
    drain = upgrade.drain
    draining = f.record.state == UpgradeState.DRAIN_REQUIRED
    evicted: list[WorkPod] = []
    forced: list[WorkPod] = []
    stuck: list[WorkPod] = []
    operands: list[WorkPod] = []
    for pod in pods:
        if pod.shelter is Shelter.OPERAND:
            operands.append(pod)
        elif pod.gpu and pod.shelter in (Shelter.DAEMON_SET, Shelter.MIRROR):
            stuck.append(pod)
        elif pod.shelter is Shelter.NONE and (pod.gpu or (draining and pod.drained)):
            by_deletion = pod.gpu and _allows(deletion, pod)
            by_drain = drain.enable and pod.drained and _allows(drain, pod)
            if by_deletion or (draining and by_drain):
                evicted.append(pod)
            elif not by_drain:
                forced.append(pod)
    return _Pods(tuple(evicted), tuple(forced), tuple(stuck), tuple(operands))


def _allows(rules: PodDeletion, pod: WorkPod) -> bool:
    return (rules.force or not pod.bare) and (rules.delete_empty_dir or not pod.empty_dir)


def _drained(pod: WorkPod) -> bool:
    return pod.drained and pod.shelter is Shelter.NONE


def _evict(
    f: Flight, wanted: tuple[WorkPod, ...], wait: Wait, *, by_force: bool = False
) -> Outcome:
    """The job for these pods, unless just that one is under way."""
    there = {pod.uid for pod in f.node.pods or ()}
    asked = {job.uid for job in f.node.leaving if job.uid in there}
    refs = tuple(
        PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        for pod in wanted
        if by_force or pod.uid in asked or not pod.deleting
    )
    forcing = all(job.by_force for job in f.node.leaving if job.uid in there)
    if {ref.uid for ref in refs} == asked and (not by_force or forcing):
        return wait
    how = "deleted by force" if by_force else "asked to leave"
    because = f"pods are {how}: {few(pod.shown for pod in wanted)}"
    if not wanted:
        because = "pods that were asked to leave may stay"
    return Step(actions=(EvictPods(pods=refs, by_force=by_force),), because=because, wait=wait)


def _wait(f: Flight, pods: _Pods, until: float | None = None) -> Wait:
    refused = [
        f"{pod.shown}: {job.refused}"
        for job in f.node.leaving
        for pod in pods.evicted
        if job.uid == pod.uid and job.refused
    ]
    if refused:
        return waits(f, WaitCode.PDB, few(refused), until=until)
    if pods.evicted or pods.forced or pods.stuck:
        return waits(f, WaitCode.EVICTION, _named(pods), until=until)
    return waits(f, WaitCode.OPERANDS, few(pod.shown for pod in pods.operands), until=until)


def _named(pods: _Pods) -> str:
    """All of them, with what keeps those that cannot be evicted."""
    evicted = [pod.shown + (" (terminating)" if pod.deleting else "") for pod in pods.evicted]
    forced = [f"{pod.shown} ({_why_not(pod)})" for pod in pods.forced]
    stuck = [f"{pod.shown} ({pod.shelter.value} pod with GPUs)" for pod in pods.stuck]
    operands = [pod.shown for pod in pods.operands]
    return few([*evicted, *forced, *stuck, *operands])


def _why_not(pod: WorkPod) -> str:
    return "bare, and force is off" if pod.bare else "emptyDir, and deleteEmptyDir is off"


def _overdue(f: Flight, named: str, pods: _Pods | None) -> Outcome:
    """The limit for eviction has passed: as the strategy says."""
    cause = f"eviction: {named}"
    match f.pool.strategy.on_eviction_timeout:
        case OnEvictionTimeout.RELEASE:
            return release(f, cause, back_off=True)
        case OnEvictionTimeout.FORCE_DELETE if pods is not None:
            return _force(f, pods, cause)
        case _:
            return fail(f, cause)


def _force(f: Flight, pods: _Pods, cause: str) -> Outcome:
    last = (f.until or f.now.at) + limits.FORCED
    if limits.passed(last, f.now):
        return fail(f, f"{cause}, also by force")
    return _evict(f, pods.evicted + pods.forced, _wait(f, pods, last), by_force=True)
