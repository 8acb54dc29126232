"""The common part of all agents on a machine: slots, order of ops, journals and reports.

An agent reads its slot, refuses the command or begins an op, and reports its end once. The ops of
the driver agent and the validator are in `driver_agent` and `validator_agent`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from libs.contracts.admission import (
    AgentIdentity,
    BegunOp,
    SeenOrders,
    find_refusal,
    fingerprint,
)
from libs.contracts.commands import Command, Idle, Install, Order, Quiesce, Swap
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome, Progress, Refusal, Result
from libs.forecast.stage.objects import ProofOnDisk, StageAgent, StageMachine
from libs.forecast.stage.state import StageState

AgentCallback = Callable[..., None]
"""Called with the state, the machine, the agent, and the values."""

WITHOUT_DEVICES = frozenset({"driver", "validator"})
"""Components that open devices during ops only."""


def is_connected(state: StageState, machine: StageMachine) -> bool:
    return state.bus_up and machine.connected and machine.up


def is_live(agent: StageAgent) -> bool:
    return agent.alive and not agent.hung


# Reading the slot.


def on_poke(state: StageState, name: str, part: str) -> None:
    machine = state.machines.get(name)
    if machine is not None and machine.up:
        read_slot(state, machine, machine.agents[part])


def read_slot(
    state: StageState, machine: StageMachine, agent: StageAgent, *, resumes_rest: bool = False
) -> None:
    """Refuse, acknowledge, resume or begin the command in the slot.

    With `resumes_rest` all agents of a machine without an op read their slots at once: one that
    finds its last command again changes nothing for the others.
    """
    if not is_live(agent) or not is_connected(state, machine):
        return
    agent.has_read_slot = True
    slot = state.slots.get((machine.name, agent.component))
    if slot is None:
        agent.holds_devices = agent.holds_devices or agent.component not in WITHOUT_DEVICES
        return
    command = slot.command
    refusal = _refusal(state, machine, agent, command)
    if refusal is not None:
        _refuse(state, machine, agent, command, refusal)
        return
    agent.epoch = command.epoch
    agent.slot = command
    if agent.last_result is not None and agent.last_result.order == command.order:
        _remember(agent, command)
        report(state, machine, agent)
        if resumes_rest:
            return
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
) -> Refusal | None:
    begun, order, seconds_left = None, agent.highest_order, command.deadline - state.now
    if order == command.order and order != Order(0, 0):
        if agent.current_op is None:
            # A finished op keeps no body to compare with, and needs no time.
            seconds_left = 0.0
        else:
            begun = BegunOp(
                order=order,
                epoch=agent.epoch,
                command=command.kind,
                fingerprint=fingerprint(agent.current_op),
                boot_id=machine.boot_id,
                started=agent.since,
            )
    return find_refusal(
        command,
        seen=SeenOrders(node_uid=agent.node_uid, epoch=agent.epoch, order=order, begun=begun),
        agent=AgentIdentity(
            node=machine.name,
            node_uid=agent.node_uid,
            boot_id=machine.boot_id,
            component=agent.component,
            handles=_in_order(agent.capabilities),
        ),
        seconds_left=seconds_left,
    )


@lru_cache(maxsize=64)
def _in_order(capabilities: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(capabilities))


def _refuse(
    state: StageState, machine: StageMachine, agent: StageAgent, command: Command, refusal: Refusal
) -> None:
    if agent.pending_reports.refusal != refusal:
        state.on_entry(machine, agent, command, EntryPhase.REFUSED, detail=refusal.message)
        state.log(f"{machine.name}: {agent.component} refuses {refusal.message}")
    agent.pending_reports = replace(agent.pending_reports, refusal=refusal)
    report(state, machine, agent)


def _begin(state: StageState, machine: StageMachine, agent: StageAgent, command: Command) -> None:
    keep_proof(agent, command)
    agent.current_op = command
    agent.highest_order = command.order
    state.on_entry(machine, agent, command, EntryPhase.STARTED)
    _run(state, machine, agent, command)


def keep_proof(agent: StageAgent, command: Command) -> None:
    """Put what a command proves on the disk, or erase what it voids, before it is begun."""
    if agent.component != "driver":
        return
    body = command.open()
    if isinstance(body, Swap | Install):
        agent.disk = None
    elif isinstance(body, Idle):
        agent.disk = body.proven and ProofOnDisk(agent.node_uid, body.proven)


def _run(state: StageState, machine: StageMachine, agent: StageAgent, command: Command) -> None:
    """Run the op in this process; each change of the machine continues it."""
    agent.running = True
    agent.phase = ""
    agent.since = state.now
    agent.body = command.open()
    machine.busy_since = None
    if not isinstance(agent.body, Idle):
        state.log(f"{machine.name}: {agent.component} begins {command.kind} {command.order}")
    if isinstance(agent.body, Quiesce):
        wait = state.latencies.device_close if agent.holds_devices else 0.0
        call_in_op(state, wait, _devices_closed, machine, agent)
    elif isinstance(agent.body, Idle):
        _remember(agent, command)
        finish(state, machine, agent, Outcome.DONE)
    else:
        agent.proven = None


def _remember(agent: StageAgent, command: Command) -> None:
    """Apply the effects of a command that last until the next one."""
    body = command.open()
    if isinstance(body, Quiesce):
        agent.holds_devices = False
    elif isinstance(body, Idle):
        agent.holds_devices = agent.component not in WITHOUT_DEVICES
        agent.proven = body.proven
        keep_proof(agent, command)


def _devices_closed(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    agent.holds_devices = False
    finish(state, machine, agent, Outcome.DONE)
    state.machine_changed(machine)


# Timers of a process.


class Process(NamedTuple):
    """A process of an agent in a boot of its machine, and in one of its ops; None: in any."""

    machine: str
    component: str
    boot: int
    number: int
    order: Order | None = None


def call_in_process(
    state: StageState,
    seconds: float,
    callback: AgentCallback,
    machine: StageMachine,
    agent: StageAgent,
    *values: Any,
) -> None:
    """Call back in this process of the agent; its end voids the call."""
    process = Process(machine.name, agent.component, machine.boot, agent.process_number)
    state.call_after(seconds, process_is_due, callback, process, values)


def call_in_op(
    state: StageState,
    seconds: float,
    callback: AgentCallback,
    machine: StageMachine,
    agent: StageAgent,
    *values: Any,
) -> None:
    """Call back in the current op of this process; another op voids the call too."""
    order = agent.current_op.order if agent.current_op is not None else None
    process = Process(machine.name, agent.component, machine.boot, agent.process_number, order)
    state.call_after(seconds, process_is_due, callback, process, values)


def process_is_due(
    state: StageState, callback: AgentCallback, due: Process, values: tuple[Any, ...]
) -> None:
    machine = state.machine(due.machine, due.boot)
    agent = machine.agents[due.component] if machine is not None else None
    if machine is None or agent is None or agent.process_number != due.number:
        return
    op = agent.current_op
    if due.order is None or (op is not None and op.order == due.order):
        callback(state, machine, agent, *values)


# Results and reports.


def finish(
    state: StageState,
    machine: StageMachine,
    agent: StageAgent,
    outcome: Outcome,
    why: tuple[str, str] = ("", ""),
) -> None:
    """End the op: record its result in the journal, then report it."""
    command, (code, message) = agent.current_op, why
    if command is None:
        raise RuntimeError(f"{agent.component} of {machine.name} has no op in progress to finish")
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
    state.on_entry(machine, agent, command, EntryPhase.FINISHED, detail=message, result=result)
    state.log(
        f"{machine.name}: {agent.component} ends {command.kind} {command.order}: "
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
    command, before = agent.current_op, agent.pending_reports.progress
    if command is None or (
        before is not None
        and (before.order, before.phase, before.detail) == (command.order, phase, detail)
    ):
        return
    agent.phase = phase
    current = Progress(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        phase=phase,
        detail=detail,
        since=state.now,
    )
    agent.pending_reports = replace(agent.pending_reports, progress=current)
    report(state, machine, agent)


def step(state: StageState, machine: StageMachine, agent: StageAgent, detail: str) -> None:
    if agent.current_op is not None:
        state.on_entry(machine, agent, agent.current_op, EntryPhase.STEP, detail=detail)


def report(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """Publish the pending reports if the bus is reachable."""
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
