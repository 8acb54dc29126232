"""The GPUs of a machine and how they are divided, by configurations that tests name.

A layout is its digest alone: a configuration is named after what becomes of it.
"""

from msgspec.structs import replace

from libs.contracts.commands import REBOOT_REQUIRED, GpuGeometry, Mig
from libs.contracts.reports import Outcome
from libs.forecast.stage import agents
from libs.forecast.stage.objects import UNDIVIDED, StageAgent, StageMachine, StageNode
from libs.forecast.stage.state import StageState
from libs.rollout.views.machine import WantedMig

ALL_DISABLED, FAILS, REBOOTS, UNKNOWN = "all-disabled", "fails", "reboots", "unknown"
"""Configurations that turn MIG off, cannot be applied, are applied by a reboot, or do not exist.
Any other is applied."""

_GPU = "GPU-1"


def digest_of(config: str) -> str:
    return UNDIVIDED if config == ALL_DISABLED else f"mig-{config}"


def wanted_mig(config: str) -> WantedMig:
    """Return what a label with this configuration asks for."""
    if config == UNKNOWN:
        return WantedMig(config=config, error=f"there is no MIG configuration {config}")
    digest = digest_of(config)
    gpus = (GpuGeometry(uuid=_GPU, index=0, mig=digest != UNDIVIDED),)
    return WantedMig(config=config, digest=digest, gpus=gpus, may_reboot=True)


def with_facts(wanted: WantedMig, machine: StageMachine, node: StageNode) -> WantedMig:
    """Add whether facts of this boot show the geometry."""
    boot_id, shown = machine.shown_layout
    applied = shown == wanted.digest if boot_id == node.view.boot_id else None
    return replace(wanted, applied=applied)


def on_machine_changed(state: StageState, machine: StageMachine) -> None:
    """Report the layout, unless discovery is quiesced."""
    agent = machine.agents.get("discovery")
    if agent is None or not (agents.is_live(agent) and agents.is_connected(state, machine)):
        return
    shown = (machine.boot_id, machine.layout)
    if agent.holds_devices and machine.loaded is not None and machine.shown_layout != shown:
        machine.shown_layout = shown
        state.touch(machine.name)


def divide(state: StageState, machine: StageMachine, agent: StageAgent, body: Mig) -> None:
    """Begin the op; where the GPUs are divided so already, it is done."""
    if agent.phase == "dividing":
        return
    if machine.loaded is None:
        agents.finish(state, machine, agent, Outcome.FAILED, ("no-driver", "no driver is loaded"))
    elif machine.layout == body.digest:
        agents.finish(state, machine, agent, Outcome.DONE)
    else:
        agents.progress(state, machine, agent, "dividing")
        agents.call_in_op(state, state.latencies.divide, divided, machine, agent)


def divided(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """End the op as its configuration is named."""
    body = agent.body
    if not isinstance(body, Mig):
        return
    holders = [each.component for each in machine.agents.values() if each.holds_devices]
    if holders:
        message = f"GPU 0 is in use by {', '.join(holders)}"
        agents.finish(state, machine, agent, Outcome.FAILED, ("in-use", message))
    elif body.config == FAILS:
        message = "GPU 0 has no room; it is divided as before"
        agents.finish(state, machine, agent, Outcome.FAILED, ("no-room", message))
    elif body.config == REBOOTS:
        machine.pending_layout = body.digest if body.reboot else ""
        message = "GPU 0 cannot be reset"
        agents.finish(state, machine, agent, Outcome.FAILED, (REBOOT_REQUIRED, message))
    else:
        agents.step(state, machine, agent, f"divided: {body.config}")
        machine.layout = body.digest
        agents.finish(state, machine, agent, Outcome.DONE)
    state.machine_changed(machine)
