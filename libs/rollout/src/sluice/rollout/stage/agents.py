"""What all components on a machine have in common: slots, order, journals, reports, and dying.

An agent reads its slot, refuses in words or begins an op, ends it once, and says so. What the ops
of the driver agent and of the validator do is in `driving` and `validating`.
"""

from msgspec.structs import replace

from sluice.contracts.commands import Command, CommandKind, Idle, Order, Quiesce
from sluice.contracts.journal import EntryPhase
from sluice.contracts.reports import Outcome, Progress, Refusal, RefusalCode, Result
from sluice.rollout.stage.objects import Agent, Machine, Said
from sluice.rollout.stage.state import State

QUIET = frozenset({"driver", "validator"})
"""Components that have no devices open outside ops."""
_BOUND_TO_A_BOOT = frozenset(CommandKind) - {CommandKind.IDLE}


def connected(state: State, machine: Machine) -> bool:
    """Whether its agents and the bus can hear each other."""
    return state.bus_up and machine.connected and machine.up


def lives(agent: Agent) -> bool:
    """Whether it does anything."""
    return agent.alive and not agent.hung


# Reading the slot.


def poked(state: State, name: str, part: str) -> None:
    """The agent reads its slot."""
    machine = state.machines.get(name)
    if machine is not None and machine.up:
        read(state, machine, machine.agents[part])


def read(state: State, machine: Machine, agent: Agent) -> None:
    """What the slot says now is refused, known, resumed or begun."""
    if not lives(agent) or not connected(state, machine):
        return
    slot = state.slots.get((machine.name, agent.part))
    if slot is None:
        agent.holds = agent.holds or agent.part not in QUIET
        return
    command = slot.command
    refused = _refusal(state, machine, agent, command)
    if refused is not None:
        _refuse(state, machine, agent, command, refused)
        return
    agent.epoch = command.epoch
    agent.slot = command
    if agent.ended is not None and agent.ended.order == command.order:
        _remember(agent, command)
        report(state, machine, agent)
    elif agent.begun is not None and agent.begun.order == command.order:
        agent.begun = command
        if not agent.running:
            _run(state, machine, agent, command)
    else:
        if agent.begun is not None:
            finish(state, machine, agent, Outcome.SUPERSEDED)
        _begin(state, machine, agent, command)
    state.stir(machine)


def _refusal(
    state: State, machine: Machine, agent: Agent, command: Command
) -> tuple[RefusalCode, str] | None:
    order, highest = command.order, agent.highest
    if command.node_uid != agent.node_uid:
        return RefusalCode.OTHER_NODE, f"for node {command.node_uid}, this is {agent.node_uid}"
    if command.epoch < agent.epoch:
        return RefusalCode.OLDER_EPOCH, f"of epoch {command.epoch}, {agent.epoch} was seen"
    if order < highest:
        older = order.token < highest.token
        code = RefusalCode.OLDER_TOKEN if older else RefusalCode.OLDER_OP
        return code, f"{order}, {highest} was seen"
    if command.kind.value not in agent.knows:
        return RefusalCode.UNKNOWN_KIND, f"{command.kind} is nothing that this agent can do"
    if command.kind in _BOUND_TO_A_BOOT:
        if command.boot_id != machine.boot_id:
            return RefusalCode.OTHER_BOOT, f"for boot {command.boot_id}, not {machine.boot_id}"
        known = agent.begun is not None and agent.begun.order == order
        if state.now > command.deadline and order != highest and not known:
            return RefusalCode.EXPIRED, f"its deadline was {command.deadline:.0f}"
    return None


def _refuse(
    state: State,
    machine: Machine,
    agent: Agent,
    command: Command,
    why: tuple[RefusalCode, str],
) -> None:
    refusal = Refusal(
        code=why[0],
        message=f"{command.kind} {command.order} is {why[1]}",
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
    )
    if agent.says.refusal != refusal:
        _journal(state, (machine, agent), command, EntryPhase.REFUSED, detail=refusal.message)
        state.tell(f"{machine.name}: {agent.part} refuses {refusal.message}")
    agent.says = replace(agent.says, refusal=refusal)
    report(state, machine, agent)


def _begin(state: State, machine: Machine, agent: Agent, command: Command) -> None:
    agent.begun = command
    agent.highest = command.order
    _journal(state, (machine, agent), command, EntryPhase.STARTED)
    _run(state, machine, agent, command)


def _run(state: State, machine: Machine, agent: Agent, command: Command) -> None:
    """It is under way in this process; what it comes to is looked at whenever something happens."""
    agent.running = True
    agent.phase = ""
    agent.since = state.now
    agent.body = command.open()
    machine.busy_since = None
    if not isinstance(agent.body, Idle):
        state.tell(f"{machine.name}: {agent.part} begins {command.kind} {command.order}")
    if isinstance(agent.body, Quiesce):
        wait = state.pace.close if agent.holds else 0.0
        state.after(wait, _closed, machine.name, agent.part, agent.life, command.order)
    elif isinstance(agent.body, Idle):
        _remember(agent, command)
        finish(state, machine, agent, Outcome.DONE)
    else:
        agent.proven = None


def _remember(agent: Agent, command: Command) -> None:
    """What a slot says that lasts until the next command."""
    body = command.open()
    if isinstance(body, Quiesce):
        agent.holds = False
    elif isinstance(body, Idle):
        agent.holds = agent.part not in QUIET
        agent.proven = body.proven


def _closed(state: State, name: str, part: str, life: int, order: Order) -> None:
    machine = state.machines[name]
    agent = machine.agents[part]
    if agent.life == life and lives(agent) and agent.begun and agent.begun.order == order:
        agent.holds = False
        finish(state, machine, agent, Outcome.DONE)
        state.stir(machine)


# Ending ops, and saying things.


def finish(
    state: State,
    machine: Machine,
    agent: Agent,
    outcome: Outcome,
    why: tuple[str, str] = ("", ""),
) -> None:
    """The op ends: written down, then said."""
    command, (code, message) = agent.begun, why
    if command is None:
        raise RuntimeError(f"{agent.part} of {machine.name} has no op that could end")
    result = Result(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        outcome=outcome,
        code=code,
        message=message,
        started=agent.since,
        finished=state.now,
    )
    _journal(state, (machine, agent), command, EntryPhase.FINISHED, detail=message, result=result)
    state.tell(
        f"{machine.name}: {agent.part} ends {command.kind} {command.order}: "
        + " ".join(filter(None, (outcome.value, code, message)))
    )
    agent.ended = result
    agent.begun = agent.body = None
    agent.running = False
    agent.phase = ""
    agent.says = replace(agent.says, result=result, progress=None)
    report(state, machine, agent)


def progress(state: State, machine: Machine, agent: Agent, phase: str, detail: str = "") -> None:
    """Which sub-step the op is at, said when it is another one."""
    command, before = agent.begun, agent.says.progress
    if command is None or (
        before is not None
        and (before.order, before.phase, before.detail) == (command.order, phase, detail)
    ):
        return
    agent.phase = phase
    told = Progress(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        phase=phase,
        detail=detail,
        since=state.now,
    )
    agent.says = replace(agent.says, progress=told)
    report(state, machine, agent)


def step(state: State, machine: Machine, agent: Agent, detail: str) -> None:
    """A sub-step goes into the journal."""
    if agent.begun is not None:
        _journal(state, (machine, agent), agent.begun, EntryPhase.STEP, detail=detail)


def report(state: State, machine: Machine, agent: Agent) -> None:
    """The bus has its last words, if it is there; else they are said when it is back."""
    if agent.says.highest != agent.highest:
        agent.says = replace(agent.says, highest=agent.highest)
    if lives(agent) and connected(state, machine) and agent.said != agent.says:
        agent.said = agent.says
        agent.heard = state.now
        state.touch(machine.name)


def _journal(
    state: State,
    where: tuple[Machine, Agent],
    command: Command,
    phase: EntryPhase,
    **said: object,
) -> None:
    if state.chronicle is not None:
        machine, agent = where
        state.chronicle.entry(state.now, machine.boot_id, agent.part, command, phase=phase, **said)


# Living and dying.


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
    read(state, machine, agent)
    state.stir(machine)


def restart(state: State, machine: Machine, agent: Agent, *, forgets: bool = False) -> None:
    """It dies and is started again, perhaps without its journal: then its last report is one."""
    dies(state, machine, agent)
    if forgets:
        agent.epoch = 0
        agent.highest = Order(0, 0)
        agent.begun = agent.body = None
        agent.ended = agent.said.result
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
        agent.holds = agent.part not in QUIET and agent.alive
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
        if lives(agent) and machine.up:
            _is_heard(state, machine, agent)
            read(state, machine, agent)
            report(state, machine, agent)
    state.stir(machine)


def _is_heard(state: State, machine: Machine, agent: Agent) -> None:
    if connected(state, machine):
        agent.silent_at = None
        agent.heard = state.now
        report(state, machine, agent)
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
