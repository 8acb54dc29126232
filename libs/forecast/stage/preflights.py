"""Preflights: checks of a machine by its driver agent before an upgrade."""

from libs.contracts.commands import PreflightCheck
from libs.contracts.reports import Finding, Preflight
from libs.forecast.stage import agents
from libs.forecast.stage.objects import StageMachine
from libs.forecast.stage.state import StageState
from libs.rollout.views.machine import EvictionExemption, PreflightQuery


def start_preflight(
    state: StageState, name: str, boot_id: str, leader: int, check: PreflightCheck
) -> bool:
    """Send the check and return whether it could be sent."""
    machine = state.machines.get(name)
    if machine is None or not state.bus_up or leader != state.leader:
        return False
    memory = state.memory_of(name)
    memory.preflight = PreflightQuery(
        label=check.label, asked_at=state.now, removes=check.removes_pods
    )
    memory.preflight_boot = boot_id
    state.touch(name)
    asked = (name, boot_id, leader, check)
    state.call_after(state.latencies.preflight, finish_preflight, *asked)
    return True


def finish_preflight(
    state: StageState, name: str, boot_id: str, leader: int, check: PreflightCheck
) -> None:
    """Answer the check, if the driver agent can."""
    machine = state.machines.get(name)
    memory = state.memory.get(name)
    if machine is None or memory is None or memory.preflight is None or leader != state.leader:
        return
    agent = machine.agents["driver"]
    if not agents.is_live(agent) or not agents.is_connected(state, machine):
        return
    if boot_id != machine.boot_id or memory.preflight.label != check.label:
        return
    answer = Preflight(
        check=f"check-{name}", label=check.label, findings=tuple(_findings(machine, check))
    )
    asked = memory.preflight.asked_at
    memory.preflight = PreflightQuery(
        label=check.label,
        asked_at=asked,
        removes=check.removes_pods,
        answered_at=state.now,
        answer=answer,
    )
    state.touch(name)


def _findings(machine: StageMachine, check: PreflightCheck) -> list[Finding]:
    found = list(machine.obstacles)
    if machine.host_processes and machine.loaded is not None:
        found.append(
            Finding(code="holder", message=f"{machine.host_processes} processes of the host")
        )
    found += [
        Finding(
            code="holder", message=f"pod {tenant_pod.tenant.namespace}/{tenant_pod.tenant.name}"
        )
        for tenant_pod in machine.tenant_pods.values()
        if tenant_pod.on_machine
        and tenant_pod.tenant.gpus
        and tenant_pod.tenant.exemption is not EvictionExemption.OPERAND
        and tenant_pod.uid not in check.removes_pods
    ]
    return found
