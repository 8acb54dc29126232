"""Decide whether an agent may take a command, from the orders it has seen before. Pure.

`SeenOrders` is folded from the agent's journal, so a restarted agent decides as before.
"""

import hashlib
from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from libs.contracts.commands import COMMANDS, Check, Command, CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import Refusal, RefusalCode, Result

OUTRANKED_CODES = (RefusalCode.OLDER_EPOCH, RefusalCode.OLDER_TOKEN, RefusalCode.OLDER_OP)
"""Refusals of commands by a deposed leader, which change nothing."""


def fingerprint(command: Command) -> str:
    """Return a digest of what is to be done; two commands of one order must have the same."""
    content = b"\0".join((command.kind.encode(), command.boot_id.encode(), bytes(command.body)))
    return hashlib.sha256(content).hexdigest()[:16]


class BegunOp(msgspec.Struct, frozen=True, kw_only=True):
    """The last op that an agent began, according to its journal."""

    order: Order
    epoch: int
    command: str
    fingerprint: str
    boot_id: str
    started: float
    steps: tuple[str, ...] = ()
    result: Result | None = None
    ended_in: str = ""
    """The boot in which it ended."""

    @classmethod
    def from_entry(cls, entry: Entry) -> "BegunOp":
        return cls(
            order=entry.order,
            epoch=entry.epoch,
            command=entry.command,
            fingerprint=entry.detail,
            boot_id=entry.boot_id,
            started=entry.time,
        )


class SeenOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders that an agent has seen for one node uid."""

    node_uid: str
    epoch: int = 0
    order: Order = Order(0, 0)
    begun: BegunOp | None = None

    def after(self, entry: Entry) -> "SeenOrders":
        """Return what is known with this entry in the journal too."""
        seen = replace(self, epoch=max(self.epoch, entry.epoch))
        if entry.node_uid != self.node_uid or _is_foreign_refusal(entry):
            return seen
        return replace(
            seen, order=max(self.order, entry.order), begun=_begun_after(self.begun, entry)
        )


def _is_foreign_refusal(entry: Entry) -> bool:
    """Return whether a command of another leader or for another node was refused."""
    code = entry.detail.partition(":")[0]
    return entry.phase is EntryPhase.REFUSED and code in (*OUTRANKED_CODES, RefusalCode.OTHER_NODE)


def _begun_after(begun: BegunOp | None, entry: Entry) -> BegunOp | None:
    if entry.phase is EntryPhase.STARTED and (begun is None or entry.order >= begun.order):
        return BegunOp.from_entry(entry)
    if begun is None or entry.order != begun.order:
        return begun
    if entry.phase is EntryPhase.FINISHED:
        return replace(begun, result=entry.result, ended_in=entry.boot_id)
    if entry.phase is EntryPhase.STEP and entry.detail and entry.detail not in begun.steps:
        return replace(begun, steps=(*begun.steps, entry.detail))
    return begun


class AgentIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that reads a slot, and the kinds of commands it handles."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    handles: Collection[str]


def find_refusal(
    command: Command, *, seen: SeenOrders, agent: AgentIdentity, seconds_left: float
) -> Refusal | None:
    """Return why the agent must not take this command, or None if it may.

    `seconds_left`: how long it may still be begun.
    """
    return (
        _epoch(command, seen)
        or _node(command, agent)
        or _order(command, seen)
        or _boot(command, agent)
        or _kind(command, agent)
        or expiry_refusal(command, seen, seconds_left)
    )


def make_refusal(command: Command, code: RefusalCode, message: str) -> Refusal:
    return Refusal(
        code=code,
        message=f"command {command.kind} {command.order} of epoch {command.epoch}: {message}",
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind,
    )


def _epoch(command: Command, seen: SeenOrders) -> Refusal | None:
    if command.epoch >= seen.epoch:
        return None
    message = (
        f"a newer leader (epoch {seen.epoch}) has sent commands; the sender is no longer leader"
    )
    return make_refusal(command, RefusalCode.OLDER_EPOCH, message)


def _node(command: Command, agent: AgentIdentity) -> Refusal | None:
    if is_for(command, node=agent.node, node_uid=agent.node_uid):
        return None
    message = (
        f"the command is for node {command.node} with uid {command.node_uid}, but this is"
        f" {agent.node} with uid {agent.node_uid}"
    )
    return make_refusal(command, RefusalCode.OTHER_NODE, message)


def is_for(message: Command | Check, *, node: str, node_uid: str) -> bool:
    """Return whether a command or check is for this node: its name and its uid must agree."""
    return (message.node, message.node_uid) == (node, node_uid)


def _order(command: Command, seen: SeenOrders) -> Refusal | None:
    if command.token < seen.order.token:
        message = f"the agent has seen token {seen.order.token}; use a higher token"
        return make_refusal(command, RefusalCode.OLDER_TOKEN, message)
    if command.order < seen.order:
        message = f"the agent has seen {seen.order}; use a higher number"
        return make_refusal(command, RefusalCode.OLDER_OP, message)
    begun = seen.begun
    if begun is None or begun.order != command.order or begun.fingerprint == fingerprint(command):
        return None
    message = f"{begun.order} was started as a different {begun.command}; use a higher number"
    return make_refusal(command, RefusalCode.OLDER_OP, message)


def _boot(command: Command, agent: AgentIdentity) -> Refusal | None:
    if command.boot_id == agent.boot_id or is_permanent(command.kind):
        return None
    message = f"the command is for boot {command.boot_id}, but this is boot {agent.boot_id}"
    return make_refusal(command, RefusalCode.OTHER_BOOT, message)


def _kind(command: Command, agent: AgentIdentity) -> Refusal | None:
    if command.kind not in COMMANDS.kinds:
        message = f"this release supports only {', '.join(COMMANDS.kinds)}; upgrade the agent"
        return make_refusal(command, RefusalCode.UNKNOWN_KIND, message)
    if command.kind not in agent.handles:
        message = f"{agent.component} supports only {', '.join(agent.handles)}"
        return make_refusal(command, RefusalCode.NOT_FOR_ME, message)
    try:
        command.open()
    except MalformedMessage as error:
        return make_refusal(command, RefusalCode.UNREADABLE, str(error))
    return None


def expiry_refusal(command: Command, seen: SeenOrders, seconds_left: float) -> Refusal | None:
    """Refuse a command that was not begun before its deadline."""
    begun = seen.begun is not None and seen.begun.order == command.order
    if begun or seconds_left >= 0 or is_permanent(command.kind):
        return None
    message = f"not started before its deadline, {-seconds_left:.0f} s ago"
    return make_refusal(command, RefusalCode.EXPIRED, message)


def is_permanent(kind: str) -> bool:
    """Return whether the command outlasts boots and has no end.

    `idle` changes nothing on a node; the slot of a node at rest says it forever, and its agent
    reads it after a reboot or the loss of its journal.
    """
    return kind == CommandKind.IDLE
