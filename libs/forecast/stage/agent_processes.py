"""Agents as processes: they die, hang and start again, lose the bus, and wake up on another Node.

What an agent does while it lives is in `agents`; what it must not forget when it dies is in its
journal.
"""

from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.records import LostJournal
from libs.forecast.stage import agents
from libs.forecast.stage.objects import AgentReports, StageAgent, StageMachine
from libs.forecast.stage.state import StageState


def stop_agent(
    state: StageState, machine: StageMachine, agent: StageAgent, *, hung: bool = False
) -> None:
    """Its process ends, and with it what it had open and in memory; or it hangs, and keeps that."""
    if hung:
        agent.hung = True
    else:
        agent.alive = agent.hung = agent.holds_devices = False
    agent.life += 1
    agent.running = False
    agent.slot = agent.proven = None
    if agent.silent_at is None:
        agent.silent_at = state.now + state.latencies.silent_after
    state.touch(machine.name)
    state.machine_changed(machine)


def start_agent(state: StageState, name: str, part: str, boot: int, life: int) -> None:
    """A process of its own, which reads the slot before anything else."""
    machine = state.machine(name, boot)
    agent = machine.agents[part] if machine is not None else None
    if machine is None or agent is None or agent.life != life:
        return
    agent.alive, agent.hung = True, False
    agent.life += 1
    _is_heard(state, machine, agent)
    agents.read_slot(state, machine, agent)
    state.machine_changed(machine)


def restart_agent(
    state: StageState, machine: StageMachine, agent: StageAgent, *, loses_journal: bool = False
) -> None:
    """It dies and is started again, perhaps without its journal: then its last report is one."""
    stop_agent(state, machine, agent)
    if loses_journal:
        agent.epoch = 0
        agent.highest_order = Order(0, 0)
        agent.current_op = agent.body = None
        agent.last_result = agent.published_reports.result
        if state.recorder is not None:
            lost = LostJournal(node_uid=agent.node_uid, component=agent.part, time=state.now)
            state.recorder.lost_journals.append(lost)
    values = (machine.name, agent.part, machine.boot, agent.life)
    state.call_after(state.latencies.agent_start, start_agent, *values)


def stop_agents(state: StageState, machine: StageMachine) -> None:
    """All of them end with it."""
    for agent in machine.agents.values():
        stop_agent(state, machine, agent)


def start_agents(state: StageState, machine: StageMachine) -> None:
    """They start, and have forgotten what they only knew."""
    for agent in machine.agents.values():
        agent.pending_reports = replace(agent.pending_reports, progress=None)
        agent.published_reports = replace(agent.published_reports, progress=None)
        values = (machine.name, agent.part, machine.boot, agent.life)
        state.call_after(state.latencies.agent_start, start_agent, *values)


def bind_to_node(state: StageState, machine: StageMachine) -> None:
    """Which Node they are on: another uid is another node, of which nothing is known."""
    node = state.nodes[machine.name]
    for agent in machine.agents.values():
        if agent.node_uid == node.uid:
            continue
        agent.node_uid = node.uid
        agent.epoch = 0
        agent.highest_order = Order(0, 0)
        agent.current_op = agent.body = agent.last_result = agent.slot = agent.proven = None
        agent.running = False
        agent.life += 1
        agent.pending_reports = agent.published_reports = AgentReports()
        agent.holds_devices = agent.part not in agents.WITHOUT_DEVICES and agent.alive
    state.machine_changed(machine)


def disconnect_agents(state: StageState, machine: StageMachine) -> None:
    """The machine loses the bus."""
    machine.connected = False
    for agent in machine.agents.values():
        if agent.silent_at is None:
            agent.silent_at = state.now + state.latencies.silent_after
    state.touch(machine.name)


def reconnect_agents(state: StageState, machine: StageMachine) -> None:
    """It has it again: all read their slots and say what they have to say."""
    machine.connected = True
    for agent in machine.agents.values():
        if agents.is_live(agent) and machine.up:
            _is_heard(state, machine, agent)
            agents.read_slot(state, machine, agent)
            agents.report(state, machine, agent)
    state.machine_changed(machine)


def _is_heard(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    if agents.is_connected(state, machine):
        agent.silent_at = None
        agent.last_beat = state.now
        agents.report(state, machine, agent)
        state.touch(machine.name)


def set_bus_up(state: StageState, up: bool) -> None:
    """NATS goes away for everybody, or is back."""
    if state.bus_up == up:
        return
    state.bus_up = up
    state.log(f"NATS is {'back' if up else 'away'}")
    if not up:
        state.bus_down_since = state.now
    elif state.bus_down_since is not None:
        state.bus_outages = (*state.bus_outages, (state.bus_down_since, state.now))
        state.bus_down_since = None
        for machine in state.machines.values():
            if machine.up and machine.connected:
                reconnect_agents(state, machine)
    for key in state.pools:
        state.touch_pool(key)
