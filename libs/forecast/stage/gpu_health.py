"""Failed GPUs of a machine: the verdict of its telemetry agent, and what cures them."""

from collections.abc import Sequence

from libs.contracts.gpus import GpuIdentity
from libs.forecast.stage import agents
from libs.forecast.stage.objects import GpuCure, GpuFailure, StageMachine
from libs.forecast.stage.state import StageState
from libs.rollout.views.machine import GpuVerdict
from libs.rollout.views.node import NodeView


def add_from_view(machine: StageMachine, view: NodeView) -> None:
    """Add the failed GPUs that a view names: only a repair is sure to cure them."""
    machine.failed_gpus = tuple(map(GpuFailure, view.failed_gpus))
    if view.gpu_verdict is not None:
        machine.shown_verdict = view.uid, view.gpu_verdict


def cure(machine: StageMachine, *cures: GpuCure) -> None:
    """Cure the GPUs that need one of these."""
    machine.failed_gpus = tuple(each for each in machine.failed_gpus if each.cure not in cures)


def on_machine_changed(state: StageState, machine: StageMachine) -> None:
    """Report the verdict, unless no driver is loaded or telemetry is quiesced."""
    agent = machine.agents.get("telemetry")
    if agent is None or not (agents.is_live(agent) and agents.is_connected(state, machine)):
        return
    if not agent.holds_devices or machine.loaded is None:
        return
    verdict = GpuVerdict(machine.boot_id, tuple(each.gpu for each in machine.failed_gpus))
    shown = agent.node_uid, verdict
    if machine.shown_verdict != shown and (verdict.failed or machine.shown_verdict is not None):
        machine.shown_verdict = shown
        state.touch(machine.name)


def hinders_proof(machine: StageMachine, gpus: int, failed_before: Sequence[GpuIdentity]) -> str:
    """Return why the GPUs hinder the proof of a driver; empty if they do not."""
    failed = [each.gpu.gpu for each in machine.failed_gpus]
    new = [gpu for gpu in failed if not any(gpu.is_same(before) for before in failed_before)]
    if new:
        return f"failed in this operation: {', '.join(gpu.describe() for gpu in new)}"
    return "no GPU works" if failed and len(failed) >= gpus else ""
