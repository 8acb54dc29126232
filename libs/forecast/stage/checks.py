"""Preflights: what a driver agent is asked before anything is taken away, and what it finds.

Must not know what is made of the answer.
"""

from libs.contracts.commands import PreflightCheck
from libs.contracts.reports import Finding, Preflight
from libs.forecast.stage import agents
from libs.forecast.stage.objects import Machine
from libs.forecast.stage.state import State
from libs.rollout.views.machine import Checked, Shelter


def ask(state: State, name: str, boot_id: str, leader: int, check: PreflightCheck) -> bool:
    """Put the question; whether it could be put."""
    machine = state.machines.get(name)
    if machine is None or not state.bus_up or leader != state.leader:
        return False
    known = state.knows(name)
    known.preflight = Checked(label=check.label, asked=state.now, removes=check.removes_pods)
    known.preflight_boot = boot_id
    state.touch(name)
    asked = (name, boot_id, leader, check)
    state.after(state.pace.look, preflight, *asked)
    return True


def preflight(state: State, name: str, boot_id: str, leader: int, check: PreflightCheck) -> None:
    """The driver agent has looked, if it can answer at all."""
    machine = state.machines.get(name)
    known = state.known.get(name)
    if machine is None or known is None or known.preflight is None or leader != state.leader:
        return
    agent = machine.agents["driver"]
    if not agents.lives(agent) or not agents.connected(state, machine):
        return
    if boot_id != machine.boot_id or known.preflight.label != check.label:
        return
    answer = Preflight(
        check=f"check-{name}", label=check.label, findings=tuple(_findings(machine, check))
    )
    asked = known.preflight.asked
    known.preflight = Checked(
        label=check.label,
        asked=asked,
        removes=check.removes_pods,
        answered=state.now,
        answer=answer,
    )
    state.touch(name)


def _findings(machine: Machine, check: PreflightCheck) -> list[Finding]:
    found = list(machine.obstacles)
    if machine.host_processes and machine.loaded is not None:
        found.append(
            Finding(code="holder", message=f"{machine.host_processes} processes of the host")
        )
    found += [
        Finding(code="holder", message=f"pod {work.tenant.namespace}/{work.tenant.name}")
        for work in machine.works.values()
        if work.on_machine
        and work.tenant.gpus
        and work.tenant.shelter is not Shelter.OPERAND
        and work.uid not in check.removes_pods
    ]
    return found
