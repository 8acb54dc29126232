"""Pods of tenants: how they start, complete, are evicted and end.

A pod whose object is gone may still run and keep the devices open.
"""

from collections.abc import Mapping

from libs.contracts.journal import Verb
from libs.forecast.stage import api
from libs.forecast.stage.fields import CORDON_TAINT
from libs.forecast.stage.objects import (
    StageMachine,
    StageNode,
    Tenant,
    TenantPod,
)
from libs.forecast.stage.state import SCHEDULER, ObjectRef, StageState
from libs.rollout.views.machine import EvictionExemption

TOO_MANY = 429
_PROCESS_END_SECONDS = 2.0
"""Seconds until the processes of a force-deleted pod end."""


def start_tenant_pod(
    state: StageState, machine: StageMachine, tenant_index: int, uid: str
) -> TenantPod:
    pod = TenantPod(uid=uid, tenant=machine.tenants[tenant_index])
    machine.tenant_pods[uid] = pod
    schedule_completion(state, machine, pod)
    state.touch(machine.name)
    return pod


def schedule_completion(state: StageState, machine: StageMachine, pod: TenantPod) -> None:
    _end_after(state, machine, pod, pod.tenant.remaining)


def schedule_stop(state: StageState, machine: StageMachine, pod: TenantPod) -> None:
    _end_after(state, machine, pod, pod.tenant.stop_seconds)


def _end_after(
    state: StageState, machine: StageMachine, pod: TenantPod, seconds: float | None
) -> None:
    if seconds is not None:
        state.call_after(seconds, tenant_pod_ended, machine.name, machine.boot, pod.uid)


def tenant_pod_ended(state: StageState, name: str, boot: int, uid: str) -> None:
    machine = state.machine(name, boot)
    pod = machine.tenant_pods.get(uid) if machine is not None else None
    if machine is not None and pod is not None:
        remove(state, machine, pod)


def remove(state: StageState, machine: StageMachine, pod: TenantPod) -> None:
    """Remove an ended pod, or mark it as deleting until its kubelet can report the end."""
    pod.on_machine = False
    if pod.in_api and not machine.kubelet_connected:
        pod.deleting = True
        return
    if pod.in_api:
        pod.in_api = False
        _journal(state, pod, (Verb.DELETE, "system:node"), 200, {})
    machine.tenant_pods.pop(pod.uid, None)
    if pod.counted:
        _replace(state, machine, pod.tenant)
    state.touch(machine.name)
    schedule_refill(state, machine.name)
    state.machine_changed(machine)


# Evictions and deletions.


def evict(state: StageState, machine: StageMachine, pod: TenantPod) -> str:
    """Evict by uid through the eviction API; return the refusal of a disruption budget, if any."""
    refused_for = pod.tenant.eviction_refused_for
    if pod.deleting:
        return ""
    first = state.now if pod.first_refused is None else pod.first_refused
    exhausted = state.budgets.get(pod.tenant.budget) == 0
    if exhausted or refused_for is None or state.now < first + refused_for:
        pod.first_refused = first
        _journal(state, pod, (Verb.EVICT, SCHEDULER), TOO_MANY)
        name = f"{pod.tenant.namespace}/{pod.tenant.name}"
        return f"Cannot evict pod as it would violate the pod's disruption budget {name}."
    _journal(state, pod, (Verb.EVICT, SCHEDULER), 201)
    if pod.tenant.budget in state.budgets:
        state.budgets[pod.tenant.budget] -= 1
        pod.counted = True
    stop_gang(state, pod.tenant.gang)
    begin_stop(state, machine, pod)
    return ""


def stop_gang(state: StageState, gang: str) -> None:
    """Stop the other pods of a gang that loses a member; its new pods are not followed."""
    for name, uid in state.gangs.pop(gang, ()):
        member = state.machines[name].tenant_pods.get(uid)
        if member is not None and not member.deleting:
            schedule_stop(state, state.machines[name], member)


def begin_stop(state: StageState, machine: StageMachine, pod: TenantPod) -> None:
    """Delete the pod with its grace period."""
    pod.deleting = True
    state.touch(machine.name)
    if machine.up:
        schedule_stop(state, machine, pod)


def delete(
    state: StageState, machine: StageMachine, pod: TenantPod, *, user: str = SCHEDULER
) -> None:
    """Delete the object at once; the process ends a little later, or not at all."""
    if not pod.in_api:
        return
    pod.in_api, pod.deleting = False, True
    _journal(state, pod, (Verb.DELETE, user), 200, {})
    state.touch(machine.name)
    if not pod.on_machine:
        machine.tenant_pods.pop(pod.uid, None)
    elif pod.tenant.stop_seconds is not None:
        _end_after(state, machine, pod, _PROCESS_END_SECONDS)
    state.machine_changed(machine)


# Disruption budgets: an evicted pod counts until its replacement runs.


def _replace(state: StageState, machine: StageMachine, tenant: Tenant) -> None:
    """Start a replacement elsewhere; without room, it starts when its machine is open again."""
    if not tenant.is_recreated or not tenant.gpus or _has_room(state, tenant.gpus):
        state.call_after(state.latencies.pod_scheduling, _restore_budget, tenant.budget)
    else:
        machine.missing[tenant.name] = tenant.budget


def _restore_budget(state: StageState, budget: str) -> None:
    state.budgets[budget] += 1


def _has_room(state: StageState, gpus: int) -> bool:
    """Return whether a machine that is in service has so many GPUs free."""
    return any(
        node.view.ready
        and not node.view.cordoned
        and node.view.gpus
        - sum(pod.tenant.gpus for pod in state.machines[name].tenant_pods.values())
        >= gpus
        for name, node in state.nodes.items()
    )


# The Kubernetes scheduler.


def schedule_refill(state: StageState, name: str) -> None:
    node = state.nodes.get(name)
    if node is not None:
        state.call_after(state.latencies.pod_scheduling, refill_node, name, node.view.uid)


def refill_node(state: StageState, name: str, uid: str) -> None:
    """Start the pods for which the Kubernetes scheduler finds room again."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None or node.view.uid != uid:
        return
    if not machine.up or not machine.kubelet_connected:
        return
    if node.view.cordoned or not node.view.ready or _is_repelling(state, node):
        return
    present = {pod.tenant.name for pod in machine.tenant_pods.values() if pod.in_api}
    for number, tenant in enumerate(machine.tenants):
        recreated = tenant.is_recreated and tenant.exemption is not EvictionExemption.OPERAND
        if tenant.name in present or not recreated:
            continue
        if not tenant.gpus or _offers_gpus(machine):
            start_tenant_pod(state, machine, number, state.new_uid("pod"))
            if budget := machine.missing.pop(tenant.name, ""):
                _restore_budget(state, budget)


def _is_repelling(state: StageState, node: StageNode) -> bool:
    """Return whether the node has a taint that no tenant tolerates: of a cordon, or at startup."""
    pool = state.pools.get(node.view.pool)
    keys = {CORDON_TAINT.key, pool.strategy.startup_taint if pool is not None else ""}
    return any(taint.key in keys for taint in node.view.taints)


def _offers_gpus(machine: StageMachine) -> bool:
    """Return whether the device plugin offers GPUs."""
    plugin = machine.agents.get("plugin")
    return machine.loaded is not None and plugin is not None and plugin.holds_devices


def _journal(
    state: StageState,
    pod: TenantPod,
    by: tuple[Verb, str],
    code: int,
    after: Mapping[str, str] | None = None,
) -> None:
    ref = ObjectRef("Pod", pod.tenant.name, pod.uid, pod.tenant.namespace)
    api.journal_pod(state, ref, by, code, after)
