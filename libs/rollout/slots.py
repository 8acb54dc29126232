"""Command slots of components: what they hold, new commands for them, and the answers.

A slot is desired state: a command that is already there is not sent again.
"""

from typing import Final

from msgspec.structs import replace

from libs.contracts.commands import Command, CommandBody, CommandKind, Idle, Order, Proven
from libs.contracts.identities import Writer
from libs.contracts.reports import Outcome as Ended
from libs.contracts.reports import Progress, Refusal, RefusalCode, Result
from libs.rollout.decision import WriteSlot
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component
from libs.rollout.views.node import NodeView

DRIVER: Final = Writer.DRIVER.value
VALIDATOR: Final = Writer.VALIDATOR.value
PLUGIN: Final = Writer.PLUGIN.value
QUIESCED: Final = (PLUGIN, Writer.TELEMETRY.value, Writer.DISCOVERY.value, VALIDATOR)
"""Components that must release the devices before an unload; the driver agent does so in its
`swap`."""

_FOR_GOOD: Final = 10 * 365 * 86400.0


def next_order(component: Component, token: int) -> Order:
    """Return an order above all that the slot or the component has reported under this token."""
    orders = [component.highest_order]
    if component.slot is not None:
        orders.append(component.slot.order)
    return Order(token, 1 + max((order.op for order in orders if order.token == token), default=0))


def new_command(
    node: NodeView, name: str, body: CommandBody, now: Instant, *, token: int, deadline: float
) -> WriteSlot:
    command = Command.of(
        body,
        node=node.name,
        node_uid=node.uid,
        boot_id=node.boot_id,
        epoch=now.epoch,
        order=next_order(node.components[name], token),
        deadline=deadline,
    )
    return WriteSlot(component=name, command=command)


def idle_command(
    node: NodeView, name: str, now: Instant, *, token: int, proven: Proven | None = None
) -> WriteSlot:
    """Return an `idle` without a deadline; for driver agent and validator with what is proven."""
    return new_command(
        node, name, Idle(proven=proven), now, token=token, deadline=now.at + _FOR_GOOD
    )


def renewed_epochs(node: NodeView, now: Instant) -> tuple[WriteSlot, ...]:
    """Return the commands of an earlier leader, unchanged but for our epoch."""
    return tuple(
        WriteSlot(component=name, command=replace(component.slot, epoch=now.epoch))
        for name, component in node.components.items()
        if component.slot is not None
        and component.slot.epoch < now.epoch
        and component.slot.node_uid == node.uid
    )


def held_command(node: NodeView, name: str, token: int, *kinds: CommandKind) -> Command | None:
    """Return the command in the slot if it has this token and one of these kinds (or any).

    A command for an earlier Node of this name does not count: its tokens are of another sequence.
    """
    component = node.components.get(name)
    slot = component.slot if component is not None else None
    if slot is None or slot.token != token or slot.node_uid != node.uid:
        return None
    return slot if not kinds or slot.kind in kinds else None


def live_command(
    node: NodeView, name: str, token: int, now: Instant, *kinds: CommandKind
) -> Command | None:
    """Return the command in the slot if it can still be carried out, or was."""
    command = held_command(node, name, token, *kinds)
    if command is None or is_lapsed(node.components[name], command, now):
        return None
    return command


def slot_result(node: NodeView, name: str, command: Command | None) -> Result | None:
    """Return how this op ended, if it did."""
    return None if command is None else command_result(node.components[name], command)


def is_same_op(message: Command | Progress | Refusal | Result, other: Command) -> bool:
    return message.op == other.op and message.token == other.token


def command_result(component: Component, command: Command) -> Result | None:
    result = component.result
    return result if result is not None and is_same_op(result, command) else None


def command_progress(component: Component, command: Command) -> Progress | None:
    progress = component.progress
    return progress if progress is not None and is_same_op(progress, command) else None


def is_lapsed(component: Component, command: Command, now: Instant) -> bool:
    """Whether this op will never be carried out, so that a new one is needed."""
    result = command_result(component, command)
    if result is not None:
        return result.outcome == Ended.SUPERSEDED
    highest = component.highest_order
    if highest.token == command.token and highest.op > command.op:
        return True
    refusal = component.refusal
    if refusal is None or not is_same_op(refusal, command):
        return False
    return refusal.code == RefusalCode.EXPIRED and now.at >= command.deadline


def refusal_text(component: Component, command: Command | None) -> str:
    """Return how the component refused this command; empty: it did not."""
    refusal = component.refusal
    if command is None or refusal is None or not is_same_op(refusal, command):
        return ""
    return f"refused {command.kind.value} {command.order}: {refusal.message}"
