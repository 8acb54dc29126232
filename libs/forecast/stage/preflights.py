"""Preflights: checks of a machine by its driver agent before an upgrade."""

import msgspec

from libs.contracts.commands import PreflightCheck
from libs.contracts.reports import Finding, Preflight
from libs.forecast.stage import agents
from libs.forecast.stage.images import bring_image
from libs.forecast.stage.objects import StageMachine
from libs.forecast.stage.state import StageState
from libs.rollout.decision import AskPreflight
from libs.rollout.preflight import open_query
from libs.rollout.views.machine import EvictionExemption


def start_preflight(state: StageState, name: str, leader: int, action: AskPreflight) -> bool:
    """Ask the driver agent, or list the pods first; return whether it could be asked."""
    if name not in state.machines or not state.bus_up or leader != state.leader:
        return False
    memory, check = state.memory_of(name), action.check
    before = memory.preflight if memory.preflight_boot == action.boot_id else None
    memory.preflight = open_query(action, before, state.now)
    memory.preflight_boot = action.boot_id
    state.touch(name)
    if action.awaits_pods:
        return True
    if check.prefetch:
        bring_image(state, state.machines[name], check.label)
    arguments = (name, action.boot_id, leader, check)
    state.call_after(state.latencies.preflight, finish_preflight, *arguments)
    return True


def resume_preflight(state: StageState, name: str) -> None:
    """Let the driver agent answer a check that it was asked before."""
    memory = state.memory_of(name)
    query = memory.preflight
    if query is None or query.awaits_pods or (query.answered_at or 0.0) >= query.asked_at:
        return
    check = PreflightCheck(
        label=query.label, artefact_digest=query.artefact, removes_pods=query.removes or ()
    )
    arguments = (name, memory.preflight_boot, state.leader, check)
    state.call_after(state.latencies.preflight, finish_preflight, *arguments)


def finish_preflight(
    state: StageState, name: str, boot_id: str, leader: int, check: PreflightCheck
) -> None:
    """Answer the check, if the driver agent can."""
    machine, memory = state.machines.get(name), state.memory.get(name)
    if machine is None or memory is None or memory.preflight is None or leader != state.leader:
        return
    agent = machine.agents["driver"]
    if not agents.is_live(agent) or not agents.is_connected(state, machine):
        return
    query = memory.preflight
    if boot_id != machine.boot_id or query.label != check.label or query.awaits_pods:
        return
    findings = tuple(_findings(machine, check))
    memory.preflight = msgspec.structs.replace(
        query,
        removes=check.removes_pods,
        answered_at=state.now,
        answer=Preflight(check=f"check-{name}", label=check.label, findings=findings),
    )
    state.touch(name)


def _findings(machine: StageMachine, check: PreflightCheck) -> list[Finding]:
    holders = [
        f"pod {pod.tenant.namespace}/{pod.tenant.name}"
        for pod in machine.tenant_pods.values()
        if pod.on_machine
        and pod.tenant.gpus
        and pod.tenant.exemption is not EvictionExemption.OPERAND
        and pod.uid not in check.removes_pods
    ]
    if machine.host_processes and machine.loaded is not None:
        holders.insert(0, f"{machine.host_processes} processes of the host")
    return [*machine.obstacles, *(Finding(code="holder", message=holder) for holder in holders)]
