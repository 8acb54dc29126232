"""Pods of tenants: how they start, complete, are evicted and end.

A pod whose object is gone may still run and keep the devices open.
"""

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER
from libs.forecast.stage import api
from libs.forecast.stage.field_paths import POD_GC, SCHEDULER
from libs.forecast.stage.objects import StageMachine, TenantPod
from libs.forecast.stage.state import StageState
from libs.rollout.views.machine import EvictionExemption

TOO_MANY = 429
_LINGERS = 2.0
"""Seconds until the processes of a force-deleted pod end."""


def start_tenant_pod(
    state: StageState, machine: StageMachine, tenant_at: int, uid: str
) -> TenantPod:
    tenant = machine.tenants[tenant_at]
    work = machine.tenant_pods[uid] = TenantPod(uid=uid, tenant=tenant)
    if tenant.remaining is not None:
        state.call_after(tenant.remaining, tenant_completed, machine.name, machine.boot, uid)
    state.touch(machine.name)
    return work


def tenant_completed(state: StageState, name: str, boot: int, uid: str) -> None:
    machine = state.machine(name, boot)
    work = machine.tenant_pods.get(uid) if machine is not None else None
    if machine is not None and work is not None:
        _off(state, machine, work)


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
    present = {work.tenant.name for work in machine.tenant_pods.values() if work.in_api}
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
    guarded = pod.tenant.eviction_refused_for
    if pod.deleting:
        return ""
    first = state.now if pod.first_refused is None else pod.first_refused
    if guarded is None or state.now < first + guarded:
        pod.first_refused = first
        _journal(state, pod, (Verb.EVICT, TOO_MANY), SCHEDULER)
        return f"Cannot evict pod as it would violate the pod's disruption budget {_named(pod)}."
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
    work = machine.tenant_pods.get(uid) if machine is not None else None
    if machine is not None and work is not None:
        _off(state, machine, work)


def end_pod(state: StageState, machine: StageMachine, pod: TenantPod) -> None:
    _off(state, machine, pod)


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
        there = [each for each in machine.tenant_pods.values() if each.tenant is tenant]
        if node.operands_paused:
            for work in there:
                if not work.deleting:
                    work.deleting = True
                    state.touch(name)
                    _stop(state, machine, work)
        elif not there:
            start_tenant_pod(state, machine, number, state.new_uid("pod"))


def machine_down(machine: StageMachine) -> None:
    for work in machine.tenant_pods.values():
        work.on_machine = False


def resync_kubelet(state: StageState, machine: StageMachine) -> None:
    """Restart what should run and remove the rest."""
    for work in list(machine.tenant_pods.values()):
        if work.deleting or not work.in_api:
            if not work.on_machine or work.tenant.stop_seconds is not None:
                _off(state, machine, work)
        elif not work.on_machine:
            work.on_machine = True
            if work.tenant.remaining is not None:
                state.call_after(
                    work.tenant.remaining, tenant_completed, machine.name, machine.boot, work.uid
                )
    state.touch(machine.name)


def delete_orphans(state: StageState, machine: StageMachine) -> None:
    for work in list(machine.tenant_pods.values()):
        delete(state, machine, work, user=POD_GC)


def _stop(state: StageState, machine: StageMachine, work: TenantPod) -> None:
    if not machine.up:
        return
    stops = work.tenant.stop_seconds
    if stops is not None:
        state.call_after(stops, tenant_pod_stopped, machine.name, machine.boot, work.uid)


def _off(state: StageState, machine: StageMachine, work: TenantPod) -> None:
    work.on_machine = False
    if work.in_api and not machine.kubelet_connected:
        work.deleting = True
        return
    if work.in_api:
        work.in_api = False
        _journal(state, work, (Verb.DELETE, 200), "system:node", {})
    machine.tenant_pods.pop(work.uid, None)
    state.touch(machine.name)
    schedule_refill(state, machine.name)
    state.machine_changed(machine)


def _allocatable(machine: StageMachine) -> bool:
    """Return whether the device plugin offers GPUs."""
    plugin = machine.agents.get("plugin")
    return machine.loaded is not None and plugin is not None and plugin.holds_devices


def _named(work: TenantPod) -> str:
    return f"{work.tenant.namespace}/{work.tenant.name}"


def _journal(
    state: StageState,
    work: TenantPod,
    what: tuple[Verb, int],
    user: str,
    leaves: dict[str, str] | None = None,
) -> None:
    verb, code = what
    if code >= 300 and state.recorder is None:
        return
    by = api.Requester(verb, user, MANAGER if user == SCHEDULER else "")
    pod = api.PodId(work.tenant.namespace, work.tenant.name, work.uid)
    api.journal_pod(state, pod, by, code, leaves)
