"""Evictions that the scheduler repeats until the pods are gone or no longer wanted gone."""

from libs.forecast.stage import tenant_pods
from libs.forecast.stage.objects import PendingEvictions
from libs.forecast.stage.state import StageState
from libs.rollout.decision import EvictPods


def start_evictions(state: StageState, name: str, action: EvictPods) -> None:
    """Replace the pods to evict by these."""
    known = state.memory_of(name)
    before = known.evictions
    since = before.pods if before is not None else {}
    fresh = before is None or before.by_force != action.by_force
    pods = {pod.uid: since.get(pod.uid, state.now) for pod in action.pods}
    refused = before.refused if before is not None else {}
    known.evictions = PendingEvictions(pods=pods, by_force=action.by_force, refused=refused)
    state.touch(name)
    for uid in pods:
        if fresh or uid not in since:
            request_eviction(state, name, uid, state.leader, action.by_force)


def request_eviction(state: StageState, name: str, uid: str, leader: int, by_force: bool) -> None:
    """Evict a pod, again and again; a pod that is gone counts as evicted until that is visible."""
    known, machine = state.memory.get(name), state.machines.get(name)
    leaves = known.evictions if known is not None else None
    if leaves is None or machine is None or leader != state.leader or uid not in leaves.pods:
        return
    if leaves.by_force != by_force:
        return
    work = machine.tenant_pods.get(uid)
    if work is None or not work.in_api:
        _refused(state, name, leaves, uid, "")
    elif by_force:
        tenant_pods.delete(state, machine, work)
    else:
        _refused(state, name, leaves, uid, tenant_pods.evict(state, machine, work))
        state.call_after(
            state.latencies.eviction_retry, request_eviction, name, uid, leader, by_force
        )


def has_pending(state: StageState, name: str) -> bool:
    """Return whether any pod on the machine is being evicted."""
    known, machine = state.memory.get(name), state.machines.get(name)
    leaves = known.evictions if known is not None else None
    return (
        leaves is not None
        and machine is not None
        and not leaves.pods.keys().isdisjoint(machine.tenant_pods)
    )


def _refused(state: StageState, name: str, leaves: PendingEvictions, uid: str, why: str) -> None:
    if leaves.refused.get(uid, "") != why:
        leaves.refused = {**leaves.refused, uid: why}
        state.touch(name)
