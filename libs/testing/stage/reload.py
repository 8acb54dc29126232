"""The driver on the host, which its agent loads again after a boot (docs/states.md#gate-3)."""

from libs.forecast.stage import agents, driver_agent, driver_pods
from libs.forecast.stage.objects import StageAgent, StageMachine
from libs.forecast.stage.state import StageState


def load_by_proof(
    state: StageState, machine: StageMachine, agent: StageAgent, tried: dict[str, int]
) -> None:
    """Load the proven driver, once in each boot; `tried` has the last one of each machine."""
    proven = driver_agent.proven_of(agent)
    if proven is None or machine.loaded is not None or tried.get(machine.name) == machine.boot:
        return
    if (machine.installed, machine.kernel) != (proven.install_digest, proven.kernel):
        return
    tried[machine.name] = machine.boot
    end = state.world.load(machine.name, proven.label, machine.attempt(f"load {proven.label}"))
    if end.after is not None:
        ends = (proven.install_digest, end.exit_code)
        agents.call_in_process(state, end.after, _loaded_again, machine, agent, *ends)


def _loaded_again(
    state: StageState, machine: StageMachine, _agent: StageAgent, digest: str, code: int
) -> None:
    if not code and machine.loaded is None and machine.installed == digest:
        state.log(f"{machine.name}: the proven driver is loaded again")
        machine.loaded = driver_pods.kernel_driver(digest, state.now)
        state.machine_changed(machine)
