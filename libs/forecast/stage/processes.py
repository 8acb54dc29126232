"""Agents as processes: they die, hang and start again, lose the bus, and wake up on another Node.

What an agent does while it lives is in `agents`; what it must not forget when it dies is in its
journal.
"""

from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.records import Forgot
from libs.forecast.stage import agents
from libs.forecast.stage.objects import Agent, Machine, Said
from libs.forecast.stage.state import State


def dies(state: State, machine: Machine, agent: Agent, *, hung: bool = False) -> None:
    """Its process ends, and with it what it had open and in memory; or it hangs, and keeps that."""
    if hung:
        agent.hung = True
    else:
        agent.alive = agent.hung = agent.holds = False
    agent.life += 1
    agent.running = False
    agent.slot = agent.proven = None
    if agent.silent_at is None:
        agent.silent_at = state.now + state.pace.silence
    state.touch(machine.name)
    state.stir(machine)


def starts(state: State, name: str, part: str, boot: int, life: int) -> None:
    """A process of its own, which reads the slot before anything else."""
    machine = state.machine(name, boot)
    agent = machine.agents[part] if machine is not None else None
    if machine is None or agent is None or agent.life != life:
        return
    agent.alive, agent.hung = True, False
    agent.life += 1
    _is_heard(state, machine, agent)
    agents.read(state, machine, agent)
    state.stir(machine)


def restart(state: State, machine: Machine, agent: Agent, *, forgets: bool = False) -> None:
    """It dies and is started again, perhaps without its journal: then its last report is one."""
    dies(state, machine, agent)
    if forgets:
        agent.epoch = 0
        agent.highest = Order(0, 0)
        agent.begun = agent.body = None
        agent.ended = agent.said.result
        if state.chronicle is not None:
            lost = Forgot(node_uid=agent.node_uid, component=agent.part, time=state.now)
            state.chronicle.forgot.append(lost)
    values = (machine.name, agent.part, machine.boot, agent.life)
    state.after(state.pace.agent_start, starts, *values)


def machine_down(state: State, machine: Machine) -> None:
    """All of them end with it."""
    for agent in machine.agents.values():
        dies(state, machine, agent)


def machine_up(state: State, machine: Machine) -> None:
    """They start, and have forgotten what they only knew."""
    for agent in machine.agents.values():
        agent.says = replace(agent.says, progress=None)
        agent.said = replace(agent.said, progress=None)
        values = (machine.name, agent.part, machine.boot, agent.life)
        state.after(state.pace.agent_start, starts, *values)


def node_is(state: State, machine: Machine) -> None:
    """Which Node they are on: another uid is another node, of which nothing is known."""
    node = state.nodes[machine.name]
    for agent in machine.agents.values():
        if agent.node_uid == node.uid:
            continue
        agent.node_uid = node.uid
        agent.epoch = 0
        agent.highest = Order(0, 0)
        agent.begun = agent.body = agent.ended = agent.slot = agent.proven = None
        agent.running = False
        agent.life += 1
        agent.says = agent.said = Said()
        agent.holds = agent.part not in agents.QUIET and agent.alive
    state.stir(machine)


def cut_off(state: State, machine: Machine) -> None:
    """The machine loses the bus."""
    machine.connected = False
    for agent in machine.agents.values():
        if agent.silent_at is None:
            agent.silent_at = state.now + state.pace.silence
    state.touch(machine.name)


def joined_again(state: State, machine: Machine) -> None:
    """It has it again: all read their slots and say what they have to say."""
    machine.connected = True
    for agent in machine.agents.values():
        if agents.lives(agent) and machine.up:
            _is_heard(state, machine, agent)
            agents.read(state, machine, agent)
            agents.report(state, machine, agent)
    state.stir(machine)


def _is_heard(state: State, machine: Machine, agent: Agent) -> None:
    if agents.connected(state, machine):
        agent.silent_at = None
        agent.heard = state.now
        agents.report(state, machine, agent)
        state.touch(machine.name)


def bus(state: State, up: bool) -> None:
    """NATS goes away for everybody, or is back."""
    if state.bus_up == up:
        return
    state.bus_up = up
    state.tell(f"NATS is {'back' if up else 'away'}")
    if not up:
        state.away_since = state.now
    elif state.away_since is not None:
        state.away = (*state.away, (state.away_since, state.now))
        state.away_since = None
        for machine in state.machines.values():
            if machine.up and machine.connected:
                joined_again(state, machine)
    for key in state.pools:
        state.touch_pool(key)
