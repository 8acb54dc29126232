"""What all components on a machine have in common: slots, order, journals and reports.

An agent reads its slot, refuses in words or begins an op, ends it once, and says so. What the ops
of the driver agent and of the validator do is in `driving` and `validating`, and how agents die and
start in `processes`.
"""

from msgspec.structs import replace

from libs.contracts.commands import Command, CommandKind, Idle, Order, Quiesce
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome, Progress, Refusal, RefusalCode, Result
from libs.forecast.stage.objects import StageAgent, StageMachine
from libs.forecast.stage.state import StageState

WITHOUT_DEVICES = frozenset({"driver", "validator"})
"""Components that have no devices open outside ops."""
_BOUND_TO_A_BOOT = frozenset(CommandKind) - {CommandKind.IDLE}


def is_connected(state: StageState, machine: StageMachine) -> bool:
    """Whether its agents and the bus can hear each other."""
    return state.bus_up and machine.connected and machine.up


def is_live(agent: StageAgent) -> bool:
    """Whether it does anything."""
    return agent.alive and not agent.hung


# Reading the slot.


def on_poke(state: StageState, name: str, part: str) -> None:
    """The agent reads its slot."""
    machine = state.machines.get(name)
    if machine is not None and machine.up:
        read_slot(state, machine, machine.agents[part])


def read_slot(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """What the slot says now is refused, known, resumed or begun."""
    if not is_live(agent) or not is_connected(state, machine):
        return
    slot = state.slots.get((machine.name, agent.part))
    if slot is None:
        agent.holds_devices = agent.holds_devices or agent.part not in WITHOUT_DEVICES
        return
    command = slot.command
    refused = _refusal(state, machine, agent, command)
    if refused is not None:
        _refuse(state, machine, agent, command, refused)
        return
    agent.epoch = command.epoch
    agent.slot = command
    if agent.last_result is not None and agent.last_result.order == command.order:
        _remember(agent, command)
        report(state, machine, agent)
    elif agent.current_op is not None and agent.current_op.order == command.order:
        agent.current_op = command
        if not agent.running:
            _run(state, machine, agent, command)
    else:
        if agent.current_op is not None:
            finish(state, machine, agent, Outcome.SUPERSEDED)
        _begin(state, machine, agent, command)
    state.machine_changed(machine)


def _refusal(
    state: StageState, machine: StageMachine, agent: StageAgent, command: Command
) -> tuple[RefusalCode, str] | None:
    order, highest = command.order, agent.highest_order
    if command.node_uid != agent.node_uid:
        return RefusalCode.OTHER_NODE, f"for node {command.node_uid}, this is {agent.node_uid}"
    if command.epoch < agent.epoch:
        return RefusalCode.OLDER_EPOCH, f"of epoch {command.epoch}, {agent.epoch} was seen"
    if order < highest:
        older = order.token < highest.token
        code = RefusalCode.OLDER_TOKEN if older else RefusalCode.OLDER_OP
        return code, f"{order}, {highest} was seen"
    if command.kind.value not in agent.capabilities:
        return RefusalCode.UNKNOWN_KIND, f"{command.kind} is nothing that this agent can do"
    if command.kind in _BOUND_TO_A_BOOT:
        if command.boot_id != machine.boot_id:
            return RefusalCode.OTHER_BOOT, f"for boot {command.boot_id}, not {machine.boot_id}"
        known = agent.current_op is not None and agent.current_op.order == order
        if state.now > command.deadline and order != highest and not known:
            return RefusalCode.EXPIRED, f"its deadline was {command.deadline:.0f}"
    return None


def _refuse(
    state: StageState,
    machine: StageMachine,
    agent: StageAgent,
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
    if agent.pending_reports.refusal != refusal:
        _journal(state, (machine, agent), command, EntryPhase.REFUSED, detail=refusal.message)
        state.log(f"{machine.name}: {agent.part} refuses {refusal.message}")
    agent.pending_reports = replace(agent.pending_reports, refusal=refusal)
    report(state, machine, agent)


def _begin(state: StageState, machine: StageMachine, agent: StageAgent, command: Command) -> None:
    agent.current_op = command
    agent.highest_order = command.order
    _journal(state, (machine, agent), command, EntryPhase.STARTED)
    _run(state, machine, agent, command)


def _run(state: StageState, machine: StageMachine, agent: StageAgent, command: Command) -> None:
    """It is under way in this process; what it comes to is looked at whenever something happens."""
    agent.running = True
    agent.phase = ""
    agent.since = state.now
    agent.body = command.open()
    machine.busy_since = None
    if not isinstance(agent.body, Idle):
        state.log(f"{machine.name}: {agent.part} begins {command.kind} {command.order}")
    if isinstance(agent.body, Quiesce):
        wait = state.latencies.device_close if agent.holds_devices else 0.0
        state.call_after(wait, _closed, machine.name, agent.part, agent.life, command.order)
    elif isinstance(agent.body, Idle):
        _remember(agent, command)
        finish(state, machine, agent, Outcome.DONE)
    else:
        agent.proven = None


def _remember(agent: StageAgent, command: Command) -> None:
    """What a slot says that lasts until the next command."""
    body = command.open()
    if isinstance(body, Quiesce):
        agent.holds_devices = False
    elif isinstance(body, Idle):
        agent.holds_devices = agent.part not in WITHOUT_DEVICES
        agent.proven = body.proven


def _closed(state: StageState, name: str, part: str, life: int, order: Order) -> None:
    machine = state.machines[name]
    agent = machine.agents[part]
    if (
        agent.life == life
        and is_live(agent)
        and agent.current_op
        and agent.current_op.order == order
    ):
        agent.holds_devices = False
        finish(state, machine, agent, Outcome.DONE)
        state.machine_changed(machine)


# Ending ops, and saying things.


def finish(
    state: StageState,
    machine: StageMachine,
    agent: StageAgent,
    outcome: Outcome,
    why: tuple[str, str] = ("", ""),
) -> None:
    """The op ends: written down, then said."""
    command, (code, message) = agent.current_op, why
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
    state.log(
        f"{machine.name}: {agent.part} ends {command.kind} {command.order}: "
        + " ".join(filter(None, (outcome.value, code, message)))
    )
    agent.last_result = result
    agent.current_op = agent.body = None
    agent.running = False
    agent.phase = ""
    agent.pending_reports = replace(agent.pending_reports, result=result, progress=None)
    report(state, machine, agent)


def progress(
    state: StageState, machine: StageMachine, agent: StageAgent, phase: str, detail: str = ""
) -> None:
    """Which sub-step the op is at, said when it is another one."""
    command, before = agent.current_op, agent.pending_reports.progress
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
    agent.pending_reports = replace(agent.pending_reports, progress=told)
    report(state, machine, agent)


def step(state: StageState, machine: StageMachine, agent: StageAgent, detail: str) -> None:
    """A sub-step goes into the journal."""
    if agent.current_op is not None:
        _journal(state, (machine, agent), agent.current_op, EntryPhase.STEP, detail=detail)


def report(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """The bus has its last words, if it is there; else they are said when it is back."""
    if agent.pending_reports.highest_order != agent.highest_order:
        agent.pending_reports = replace(agent.pending_reports, highest_order=agent.highest_order)
    if (
        is_live(agent)
        and is_connected(state, machine)
        and agent.published_reports != agent.pending_reports
    ):
        agent.published_reports = agent.pending_reports
        agent.last_beat = state.now
        state.touch(machine.name)


def _journal(
    state: StageState,
    where: tuple[StageMachine, StageAgent],
    command: Command,
    phase: EntryPhase,
    **said: object,
) -> None:
    if state.recorder is not None:
        machine, agent = where
        state.recorder.entry(state.now, machine.boot_id, agent.part, command, phase=phase, **said)
