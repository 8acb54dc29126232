"""Step 5: components release the GPU devices (docs/states.md#upgrade, #limits)."""

from collections.abc import Callable, Sequence

from libs.contracts.commands import Command, CommandKind, Quiesce
from libs.contracts.reports import Outcome as Ended
from libs.contracts.waits import WaitCode
from libs.rollout import limits, slots
from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    recheck_at,
    state_wait,
)
from libs.rollout.views.machine import Component


def quiesce(
    f: InFlightNode, names: Sequence[str], on_timeout: Callable[[InFlightNode, str], NodeOutcome]
) -> NodeOutcome:
    """Make these components release the devices; None: each has done so, or is silent."""
    pending: list[tuple[str, Component, Command]] = []
    unsent: list[str] = []
    for name in names:
        component = f.node.components.get(name)
        if component is None:
            continue
        command = _quiesce_command(f, component)
        if command is None:
            unsent.append(name)
        else:
            result = slots.command_result(component, command)
            is_quiet = result is not None and result.outcome == Ended.DONE
            if not (is_quiet or component.is_silent(f.now.at)):
                pending.append((name, component, command))
    if not unsent and not pending:
        return None
    if f.bus_is_down:
        return bus_wait(f)
    overdue = [
        entry for entry in pending if limits.is_past(f.answer_due(entry[2], limits.QUIESCE), f.now)
    ]
    if overdue:
        return on_timeout(f, f"quiesce: {_quiesce_text(overdue)}")
    return _send_quiesce(f, unsent) if unsent else _await_quiesce(f, pending)


def _await_quiesce(
    f: InFlightNode, pending: Sequence[tuple[str, Component, Command]]
) -> Wait | Step:
    until = min(f.answer_due(command, limits.QUIESCE) for _, _, command in pending)
    if f.record.started and f.deadline is not None:
        until = min(until, f.deadline)
    silent_at = min(component.silent_at for _, component, _ in pending)
    wait = state_wait(f, WaitCode.QUIESCE, _quiesce_text(pending), until=until)
    return recheck_at(wait, silent_at, f.now)


def _quiesce_command(f: InFlightNode, component: Component) -> Command | None:
    """Return the command in the slot if it is of this boot and not superseded."""
    command = component.slot
    if command is None or command.token != f.record.token or command.kind != CommandKind.QUIESCE:
        return None
    if (command.node_uid, command.boot_id) != (f.node.uid, f.node.boot_id):
        return None
    is_superseded = slots.is_lapsed(component, command, f.now) and f.now.at < command.deadline
    return None if is_superseded else command


def _quiesce_text(pending: Sequence[tuple[str, Component, Command]]) -> str:
    """Describe which components have not released the devices yet, and why some cannot."""
    parts: list[str] = []
    missing: list[str] = []
    for name, component, command in pending:
        result = slots.command_result(component, command)
        refused = slots.refusal_text(component, command)
        if result is not None:
            reason = result.message or result.outcome.value
            parts.append(f"{name} failed to release the devices: {reason}")
        elif refused:
            parts.append(f"{name} {refused}")
        else:
            missing.append(name)
    if missing:
        parts.insert(0, f"GPU devices not yet released by {', '.join(missing)}")
    return "; ".join(parts)


def _send_quiesce(f: InFlightNode, names: Sequence[str]) -> Step:
    deadline = f.now.at + limits.QUIESCE
    actions = tuple(f.command(name, Quiesce(), deadline) for name in names)
    components = ", ".join(names)
    detail = f"waiting for {components} to release the GPU devices"
    wait = state_wait(f, WaitCode.QUIESCE, detail, until=deadline)
    return Step(actions=actions, because=f"send quiesce to {components}", wait=wait)
