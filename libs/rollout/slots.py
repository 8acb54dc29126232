"""Command slots of components: what they hold, new commands for them, and the answers.

A slot is desired state: a command that is already there is not sent again.
"""

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from libs.contracts.commands import (
    Command,
    CommandBody,
    CommandKind,
    Idle,
    Order,
    Proven,
    describe,
)
from libs.contracts.identities import Writer
from libs.contracts.numbers import next_number
from libs.contracts.reports import Evidence, Progress, Refusal, RefusalCode, Result
from libs.contracts.reports import Outcome as Ended
from libs.policy.mig.geometry import NO_DIGEST
from libs.rollout.decision import WriteSlot
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component
from libs.rollout.views.node import NodeView

DRIVER: Final = Writer.DRIVER.value
VALIDATOR: Final = Writer.VALIDATOR.value
PLUGIN: Final = Writer.PLUGIN.value
DRA: Final = Writer.DRA.value

OFFERING: Final = (PLUGIN, DRA)
"""Components that offer GPUs to pods."""
QUIESCED: Final = (*OFFERING, Writer.TELEMETRY.value, Writer.DISCOVERY.value, VALIDATOR)
"""Components that must release the devices before an unload; the driver agent does so in its
`swap`."""

_TEN_YEARS: Final = 10 * 365 * 86400.0


def next_order(component: Component, token: int) -> Order:
    """Return an order above all that the slot or the component has reported under this token."""
    orders = [component.highest_order]
    if component.slot is not None:
        orders.append(component.slot.order)
    return Order(token, next_number(order.op for order in orders if order.token == token))


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
        valid_seconds=deadline - now.at,
    )
    return WriteSlot(component=name, command=command)


def idle_command(
    node: NodeView, name: str, now: Instant, *, token: int, proven: Proven | None = None
) -> WriteSlot:
    """Return an `idle` without a deadline; for driver agent and validator with what is proven."""
    body = idle_body(node, name, proven)
    return new_command(node, name, body, now, token=token, deadline=now.at + _TEN_YEARS)


def idle_body(node: NodeView, name: str, proven: Proven | None = None) -> Idle:
    """Return the content of an `idle`; the device plugin's names its configuration."""
    return Idle(proven=proven, config=node.plugin_config if name == PLUGIN else "")


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


def may_be_quiesced(node: NodeView, name: str, token: int) -> bool:
    """Whether the component's last command under this token is or may have been `quiesce`.

    A slot that is lost with its stream takes nothing back: the component still holds no device.
    """
    component = node.components.get(name)
    if component is None:
        return False
    slot = component.slot
    if slot is None or slot.node_uid != node.uid:
        return component.highest_order.token == token
    return slot.kind == CommandKind.QUIESCE


def live_command(
    node: NodeView, name: str, token: int, now: Instant, *kinds: CommandKind
) -> Command | None:
    """Return the command in the slot if it was carried out or still can be."""
    command = held_command(node, name, token, *kinds)
    if command is None or is_lapsed(node.components[name], command, now):
        return None
    return command


def slot_result(node: NodeView, name: str, command: Command | None) -> Result | None:
    """Return the result of this op; None: it has not ended."""
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
    return f"refused to {describe(command.kind, command.order)}: {refusal.message}"


def proven_by(evidence: Evidence) -> Proven:
    """Return the driver that passed evidence proves."""
    digest = evidence.driver_digest
    return _proven(evidence.label, evidence.kernel, "" if digest == NO_DIGEST else digest)


@lru_cache(maxsize=1024)
def _proven(label: str, kernel: str, install_digest: str) -> Proven:
    return Proven(label=label, kernel=kernel, install_digest=install_digest)
