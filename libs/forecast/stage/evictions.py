"""Evictions that the scheduler repeats until the pods are gone or no longer wanted gone."""

from libs.forecast.stage import tenant_pods
from libs.forecast.stage.objects import PendingEvictions
from libs.forecast.stage.state import StageState
from libs.rollout.decision import EvictPods


def start_evictions(state: StageState, name: str, action: EvictPods) -> None:
    """Replace the pods to evict by these."""
    memory = state.memory_of(name)
    before = memory.evictions
    since = before.pods if before is not None else {}
    is_new = before is None or before.by_force != action.by_force
    pods = {pod.uid: since.get(pod.uid, state.now) for pod in action.pods}
    refused = before.refused if before is not None else {}
    memory.evictions = PendingEvictions(pods=pods, by_force=action.by_force, refused=refused)
    state.touch(name)
    for uid in pods:
        if is_new or uid not in since:
            request_eviction(state, name, uid, state.leader, action.by_force)


def request_eviction(state: StageState, name: str, uid: str, leader: int, by_force: bool) -> None:
    """Evict a pod, again and again; a pod that is gone counts as evicted until that is visible."""
    memory, machine = state.memory.get(name), state.machines.get(name)
    pending = memory.evictions if memory is not None else None
    if pending is None or machine is None or leader != state.leader or uid not in pending.pods:
        return
    if pending.by_force != by_force:
        return
    tenant_pod = machine.tenant_pods.get(uid)
    if tenant_pod is None or not tenant_pod.in_api:
        _set_refusal(state, name, pending, uid, "")
    elif by_force:
        tenant_pods.delete(state, machine, tenant_pod)
    else:
        _set_refusal(state, name, pending, uid, tenant_pods.evict(state, machine, tenant_pod))
        state.call_after(
            state.latencies.eviction_retry, request_eviction, name, uid, leader, by_force
        )


def has_pending(state: StageState, name: str) -> bool:
    """Return whether any pod on the machine is being evicted."""
    memory, machine = state.memory.get(name), state.machines.get(name)
    pending = memory.evictions if memory is not None else None
    return (
        pending is not None
        and machine is not None
        and not pending.pods.keys().isdisjoint(machine.tenant_pods)
    )


def _set_refusal(
    state: StageState, name: str, pending: PendingEvictions, uid: str, refusal: str
) -> None:
    if pending.refused.get(uid, "") != refusal:
        pending.refused = {**pending.refused, uid: refusal}
        state.touch(name)
