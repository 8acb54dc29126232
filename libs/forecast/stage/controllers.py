"""Controllers that follow the fields of a Node: its cordon, its driver label, its record."""

from libs.contracts.journal import Verb
from libs.contracts.paths import CORDON, DRIVER, RECORD, SAFE_LOAD, TAINTS
from libs.forecast.stage import api, driver_pods, tenant_pods
from libs.forecast.stage.state import Requester, StageState
from libs.rollout.views.machine import EvictionExemption

_DISCOVERY = Requester(
    Verb.PATCH, "system:serviceaccount:sluice:sluice-discovery", "sluice-discovery"
)


def on_node_changed(state: StageState, name: str, paths: frozenset[str]) -> None:
    node = state.nodes.get(name)
    uid = node.view.uid if node is not None else ""
    if CORDON in paths:
        state.call_after(state.latencies.taint, sync_cordon_taint, name, uid)
    if TAINTS in paths:
        tenant_pods.schedule_refill(state, name)
    if DRIVER in paths:
        state.call_after(state.latencies.daemon_set, driver_pods.sync_drivers, name)
    if RECORD in paths:
        state.call_after(state.latencies.taint, set_operand_pause, name, uid)
    if SAFE_LOAD in paths and node is not None and api.value(node, SAFE_LOAD) is None:
        machine = state.machines.get(name)
        if machine is not None and machine.up:
            driver_pods.resume_load(state, machine)


def sync_cordon_taint(state: StageState, name: str, uid: str) -> None:
    """Follow the cordon, as the node lifecycle controller does."""
    node = state.nodes.get(name)
    if node is None or node.view.uid != uid or node.view.cordon_taint == node.view.cordoned:
        return
    fields = api.with_cordon_taint(node, node.view.cordoned)
    api.change_fields(state, node, fields, api.NODE_CONTROLLER)


def set_operand_pause(state: StageState, name: str, uid: str) -> None:
    """Pause or resume foreign operands in discovery's labels, as the record requires."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or node.view.uid != uid or machine is None:
        return
    record = api.record_of(node)
    paused = record is not None and record.paused
    operands = any(tenant.exemption is EvictionExemption.OPERAND for tenant in machine.tenants)
    if not operands or node.operands_paused == paused:
        return
    node.operands_paused = paused
    api.node_stored(state, node, _DISCOVERY)
    state.call_after(state.latencies.operand_pause, sync_operand_pause, name)


def sync_operand_pause(state: StageState, name: str) -> None:
    """Stop or start foreign operands, as their DaemonSets would."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or machine is None or not machine.up:
        return
    for number, tenant in enumerate(machine.tenants):
        if tenant.exemption is not EvictionExemption.OPERAND:
            continue
        running = [pod for pod in machine.tenant_pods.values() if pod.tenant is tenant]
        if not node.operands_paused and not running:
            tenant_pods.start_tenant_pod(state, machine, number, state.new_uid("pod"))
        for pod in running:
            if node.operands_paused and not pod.deleting:
                tenant_pods.begin_stop(state, machine, pod)
