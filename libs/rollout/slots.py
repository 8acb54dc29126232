"""Slots of components: what they hold, what they are to hold instead, and what was answered.

A slot is desired state: nothing is sent that is there already. Which command a state asks for is
decided elsewhere.
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
"""Those that must let go of the devices before an unload; the driver agent does in its `swap`."""

_FOR_GOOD: Final = 10 * 365 * 86400.0


def next_order(component: Component, token: int) -> Order:
    """An order above all that the slot or the component has shown under this token."""
    shown = [component.highest_order]
    if component.slot is not None:
        shown.append(component.slot.order)
    return Order(token, 1 + max((order.op for order in shown if order.token == token), default=0))


def new_command(
    node: NodeView, name: str, body: CommandBody, now: Instant, *, token: int, deadline: float
) -> WriteSlot:
    """A new op for a component."""
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
    """A component has nothing to do, for good; the driver agent and the validator: with a proof."""
    return new_command(
        node, name, Idle(proven=proven), now, token=token, deadline=now.at + _FOR_GOOD
    )


def renewed_epochs(node: NodeView, now: Instant) -> tuple[WriteSlot, ...]:
    """Slots of an earlier leader, as ours: the same ops, under our epoch."""
    return tuple(
        WriteSlot(component=name, command=replace(component.slot, epoch=now.epoch))
        for name, component in node.components.items()
        if component.slot is not None
        and component.slot.epoch < now.epoch
        and component.slot.node_uid == node.uid
    )


def held_command(node: NodeView, name: str, token: int, *kinds: CommandKind) -> Command | None:
    """What the slot holds, if it is of this token and one of these kinds, or of any.

    Of a Node that was there before under this name it holds nothing: tokens begin anew.
    """
    component = node.components.get(name)
    slot = component.slot if component is not None else None
    if slot is None or slot.token != token or slot.node_uid != node.uid:
        return None
    return slot if not kinds or slot.kind in kinds else None


def live_command(
    node: NodeView, name: str, token: int, now: Instant, *kinds: CommandKind
) -> Command | None:
    """What the slot holds, if it can still be done, or was."""
    command = held_command(node, name, token, *kinds)
    if command is None or is_lapsed(node.components[name], command, now):
        return None
    return command


def slot_result(node: NodeView, name: str, command: Command | None) -> Result | None:
    """How this op ended, if it did."""
    return None if command is None else command_result(node.components[name], command)


def is_same_op(one: Command | Progress | Refusal | Result, other: Command) -> bool:
    """Whether both are about the same op."""
    return one.op == other.op and one.token == other.token


def command_result(component: Component, command: Command) -> Result | None:
    """How this op ended, if it did."""
    result = component.result
    return result if result is not None and is_same_op(result, command) else None


def command_progress(component: Component, command: Command) -> Progress | None:
    """How far this op is, if it is under way."""
    progress = component.progress
    return progress if progress is not None and is_same_op(progress, command) else None


def is_lapsed(component: Component, command: Command, now: Instant) -> bool:
    """Whether this op will never be done: it takes another one."""
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
    """Why the component does not take this command, in its words."""
    refusal = component.refusal
    if command is None or refusal is None or not is_same_op(refusal, command):
        return ""
    return f"refused {command.kind.value} {command.order}: {refusal.message}"
