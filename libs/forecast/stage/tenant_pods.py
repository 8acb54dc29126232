"""Pods of tenants: how they start, complete, are evicted and end.

A pod whose object is gone may still run and keep the devices open.
"""

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER
from libs.forecast.stage import api
from libs.forecast.stage.field_paths import POD_GC
from libs.forecast.stage.objects import StageMachine, TenantPod
from libs.forecast.stage.state import SCHEDULER, StageState
from libs.rollout.views.machine import EvictionExemption

TOO_MANY = 429
_LINGERS = 2.0
"""Seconds until the processes of a force-deleted pod end."""


def start_tenant_pod(
    state: StageState, machine: StageMachine, tenant_at: int, uid: str
) -> TenantPod:
    tenant = machine.tenants[tenant_at]
    tenant_pod = machine.tenant_pods[uid] = TenantPod(uid=uid, tenant=tenant)
    if tenant.remaining is not None:
        state.call_after(tenant.remaining, tenant_completed, machine.name, machine.boot, uid)
    state.touch(machine.name)
    return tenant_pod


def tenant_completed(state: StageState, name: str, boot: int, uid: str) -> None:
    machine = state.machine(name, boot)
    tenant_pod = machine.tenant_pods.get(uid) if machine is not None else None
    if machine is not None and tenant_pod is not None:
        _remove(state, machine, tenant_pod)


def refill_node(state: StageState, name: str, uid: str) -> None:
    """Start the pods for which the Kubernetes scheduler finds room again."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if (
        machine is None
        or node is None
        or node.uid != uid
        or not machine.up
        or not machine.kubelet_connected
    ):
        return
    if api.is_cordoned(node) or not node.ready or node.taint:
        return
    present = {
        tenant_pod.tenant.name for tenant_pod in machine.tenant_pods.values() if tenant_pod.in_api
    }
    for number, tenant in enumerate(machine.tenants):
        if (
            tenant.name in present
            or not tenant.is_recreated
            or tenant.exemption is EvictionExemption.OPERAND
        ):
            continue
        if tenant.gpus and not _allocatable(machine):
            continue
        start_tenant_pod(state, machine, number, state.new_uid("pod"))


def schedule_refill(state: StageState, name: str) -> None:
    node = state.nodes.get(name)
    if node is not None:
        state.call_after(state.latencies.pod_scheduling, refill_node, name, node.uid)


def evict(state: StageState, machine: StageMachine, pod: TenantPod) -> str:
    """Evict by uid through the eviction API; return the refusal of a disruption budget, if any."""
    refused_for = pod.tenant.eviction_refused_for
    if pod.deleting:
        return ""
    first = state.now if pod.first_refused is None else pod.first_refused
    if refused_for is None or state.now < first + refused_for:
        pod.first_refused = first
        _journal(state, pod, (Verb.EVICT, TOO_MANY), SCHEDULER)
        name = f"{pod.tenant.namespace}/{pod.tenant.name}"
        return f"Cannot evict pod as it would violate the pod's disruption budget {name}."
    pod.deleting = True
    _journal(state, pod, (Verb.EVICT, 201), SCHEDULER)
    state.touch(machine.name)
    _stop(state, machine, pod)
    return ""


def delete(
    state: StageState, machine: StageMachine, pod: TenantPod, *, user: str = SCHEDULER
) -> None:
    """Delete the object at once; the process ends a little later, or not at all."""
    if not pod.in_api:
        return
    pod.in_api, pod.deleting = False, True
    _journal(state, pod, (Verb.DELETE, 200), user, {})
    state.touch(machine.name)
    if not pod.on_machine:
        machine.tenant_pods.pop(pod.uid, None)
    elif pod.tenant.stop_seconds is not None:
        state.call_after(_LINGERS, tenant_pod_stopped, machine.name, machine.boot, pod.uid)
    state.machine_changed(machine)


def tenant_pod_stopped(state: StageState, name: str, boot: int, uid: str) -> None:
    machine = state.machine(name, boot)
    tenant_pod = machine.tenant_pods.get(uid) if machine is not None else None
    if machine is not None and tenant_pod is not None:
        _remove(state, machine, tenant_pod)


def end_pod(state: StageState, machine: StageMachine, pod: TenantPod) -> None:
    _remove(state, machine, pod)


def set_operand_pause(state: StageState, name: str, uid: str) -> None:
    """Write discovery's values for foreign operands, as the record says."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or node.uid != uid or machine is None:
        return
    record = api.record_of(node)
    paused = record is not None and record.paused
    operands = [each for each in machine.tenants if each.exemption is EvictionExemption.OPERAND]
    if not operands or node.operands_paused == paused:
        return
    node.operands_paused = paused
    by = api.Requester(
        Verb.PATCH, "system:serviceaccount:sluice:sluice-discovery", "sluice-discovery"
    )
    api.stored(state, node, by)
    state.call_after(state.latencies.operand_pause, sync_operand_pause, name)


def sync_operand_pause(state: StageState, name: str) -> None:
    """Stop or start foreign operands, as their DaemonSets would."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or machine is None or not machine.up:
        return
    for number, tenant in enumerate(machine.tenants):
        if tenant.exemption is not EvictionExemption.OPERAND:
            continue
        running = [each for each in machine.tenant_pods.values() if each.tenant is tenant]
        if node.operands_paused:
            for tenant_pod in running:
                if not tenant_pod.deleting:
                    tenant_pod.deleting = True
                    state.touch(name)
                    _stop(state, machine, tenant_pod)
        elif not running:
            start_tenant_pod(state, machine, number, state.new_uid("pod"))


def machine_down(machine: StageMachine) -> None:
    for tenant_pod in machine.tenant_pods.values():
        tenant_pod.on_machine = False


def resync_kubelet(state: StageState, machine: StageMachine) -> None:
    """Restart what should run and remove the rest."""
    for tenant_pod in list(machine.tenant_pods.values()):
        if tenant_pod.deleting or not tenant_pod.in_api:
            if not tenant_pod.on_machine or tenant_pod.tenant.stop_seconds is not None:
                _remove(state, machine, tenant_pod)
        elif not tenant_pod.on_machine:
            tenant_pod.on_machine = True
            if tenant_pod.tenant.remaining is not None:
                state.call_after(
                    tenant_pod.tenant.remaining,
                    tenant_completed,
                    machine.name,
                    machine.boot,
                    tenant_pod.uid,
                )
    state.touch(machine.name)


def delete_orphans(state: StageState, machine: StageMachine) -> None:
    for tenant_pod in list(machine.tenant_pods.values()):
        delete(state, machine, tenant_pod, user=POD_GC)


def _stop(state: StageState, machine: StageMachine, tenant_pod: TenantPod) -> None:
    if not machine.up:
        return
    stops = tenant_pod.tenant.stop_seconds
    if stops is not None:
        state.call_after(stops, tenant_pod_stopped, machine.name, machine.boot, tenant_pod.uid)


def _remove(state: StageState, machine: StageMachine, tenant_pod: TenantPod) -> None:
    tenant_pod.on_machine = False
    if tenant_pod.in_api and not machine.kubelet_connected:
        tenant_pod.deleting = True
        return
    if tenant_pod.in_api:
        tenant_pod.in_api = False
        _journal(state, tenant_pod, (Verb.DELETE, 200), "system:node", {})
    machine.tenant_pods.pop(tenant_pod.uid, None)
    state.touch(machine.name)
    schedule_refill(state, machine.name)
    state.machine_changed(machine)


def _allocatable(machine: StageMachine) -> bool:
    """Return whether the device plugin offers GPUs."""
    plugin = machine.agents.get("plugin")
    return machine.loaded is not None and plugin is not None and plugin.holds_devices


def _journal(
    state: StageState,
    tenant_pod: TenantPod,
    answer: tuple[Verb, int],
    user: str,
    leaves: dict[str, str] | None = None,
) -> None:
    verb, code = answer
    if code >= 300 and state.recorder is None:
        return
    by = api.Requester(verb, user, MANAGER if user == SCHEDULER else "")
    pod = api.PodId(tenant_pod.tenant.namespace, tenant_pod.tenant.name, tenant_pod.uid)
    api.journal_pod(state, pod, by, code, leaves)
