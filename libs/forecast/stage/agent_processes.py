"""Agents as processes: they die, hang, restart, lose the bus, and are bound to another Node."""

from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.records import LostJournal
from libs.forecast.stage import agents
from libs.forecast.stage.objects import AgentReports, StageAgent, StageMachine
from libs.forecast.stage.state import StageState


def stop_agent(
    state: StageState, machine: StageMachine, agent: StageAgent, *, hung: bool = False
) -> None:
    """Kill the process, with what it had open and in memory; or let it hang and keep that."""
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
    """Start a process, which reads its slot first."""
    machine = state.machine(name, boot)
    agent = machine.agents[part] if machine is not None else None
    if machine is None or agent is None or agent.life != life:
        return
    agent.alive, agent.hung = True, False
    agent.life += 1
    _beat(state, machine, agent)
    agents.read_slot(state, machine, agent)
    state.machine_changed(machine)


def restart_agent(
    state: StageState, machine: StageMachine, agent: StageAgent, *, loses_journal: bool = False
) -> None:
    """Kill and start the agent; without its journal it knows its last published result only."""
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
    for agent in machine.agents.values():
        stop_agent(state, machine, agent)


def start_agents(state: StageState, machine: StageMachine) -> None:
    """Start all agents of a machine; they have lost what was in memory only."""
    for agent in machine.agents.values():
        agent.pending_reports = replace(agent.pending_reports, progress=None)
        agent.published_reports = replace(agent.published_reports, progress=None)
        values = (machine.name, agent.part, machine.boot, agent.life)
        state.call_after(state.latencies.agent_start, start_agent, *values)


def bind_to_node(state: StageState, machine: StageMachine) -> None:
    """Bind the agents to the machine's Node; for another uid they start from scratch."""
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
    machine.connected = False
    for agent in machine.agents.values():
        if agent.silent_at is None:
            agent.silent_at = state.now + state.latencies.silent_after
    state.touch(machine.name)


def reconnect_agents(state: StageState, machine: StageMachine) -> None:
    """Connect a machine to the bus: its agents read their slots and publish pending reports."""
    machine.connected = True
    for agent in machine.agents.values():
        if agents.is_live(agent) and machine.up:
            _beat(state, machine, agent)
            agents.read_slot(state, machine, agent)
            agents.report(state, machine, agent)
    state.machine_changed(machine)


def _beat(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    if agents.is_connected(state, machine):
        agent.silent_at = None
        agent.last_beat = state.now
        agents.report(state, machine, agent)
        state.touch(machine.name)


def set_bus_up(state: StageState, up: bool) -> None:
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
