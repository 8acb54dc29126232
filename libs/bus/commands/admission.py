"""Whether an agent may take a command, from what it has seen before. Pure.

`Seen` is folded from the journal, so that a restarted agent judges as the one before it did. What
is done with a command that was taken, and how a refusal travels, is not known here.
"""

from collections.abc import Collection

import msgspec

from libs.bus.slots import fingerprint
from libs.contracts.commands import COMMANDS, Command, CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import Refusal, RefusalCode, Result

OUTRANKED_CODES = (RefusalCode.OLDER_EPOCH, RefusalCode.OLDER_TOKEN, RefusalCode.OLDER_OP)
"""Refusals of what somebody deposed has written: they change nothing about what stands."""


class BegunOp(msgspec.Struct, frozen=True, kw_only=True):
    """The last op that an agent began, as its journal has it."""

    order: Order
    epoch: int
    command: str
    fingerprint: str
    """The command's fingerprint."""
    boot_id: str
    started: float
    steps: tuple[str, ...] = ()
    result: Result | None = None
    ended_in: str = ""
    """The boot in which it ended."""

    @classmethod
    def from_entry(cls, entry: Entry) -> "BegunOp":
        """What this entry began."""
        return cls(
            order=entry.order,
            epoch=entry.epoch,
            command=entry.command,
            fingerprint=entry.detail,
            boot_id=entry.boot_id,
            started=entry.time,
        )


class SeenOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent knows of the orders given to it, for one node uid."""

    node_uid: str
    epoch: int = 0
    order: Order = Order(0, 0)
    begun: BegunOp | None = None

    def after(self, entry: Entry) -> "SeenOrders":
        """What is known when this entry is in the journal too."""
        seen = msgspec.structs.replace(self, epoch=max(self.epoch, entry.epoch))
        if entry.node_uid != self.node_uid or _not_ours(entry):
            return seen
        return msgspec.structs.replace(
            seen, order=max(self.order, entry.order), begun=_begun_after(self.begun, entry)
        )


def _not_ours(entry: Entry) -> bool:
    """A refusal after which nothing is older than before: the order was somebody else's."""
    code = entry.detail.partition(":")[0]
    return entry.phase is EntryPhase.REFUSED and code in (*OUTRANKED_CODES, RefusalCode.OTHER_NODE)


def _begun_after(begun: BegunOp | None, entry: Entry) -> BegunOp | None:
    if entry.phase is EntryPhase.STARTED and (begun is None or entry.order >= begun.order):
        return BegunOp.from_entry(entry)
    if begun is None or entry.order != begun.order:
        return begun
    if entry.phase is EntryPhase.FINISHED:
        return msgspec.structs.replace(begun, result=entry.result, ended_in=entry.boot_id)
    if entry.phase is EntryPhase.STEP and entry.detail and entry.detail not in begun.steps:
        return msgspec.structs.replace(begun, steps=(*begun.steps, entry.detail))
    return begun


class AgentIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose desk a command lies on, and what can be done there."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    handles: Collection[CommandKind]


def find_refusal(
    command: Command, *, seen: SeenOrders, agent: AgentIdentity, now: float
) -> Refusal | None:
    """Why this command is not taken, in words, or None if it is."""
    return (
        _epoch(command, seen)
        or _node(command, agent)
        or _order(command, seen)
        or _boot(command, agent)
        or _kind(command, agent)
        or expiry_refusal(command, seen, now)
    )


def make_refusal(command: Command, code: RefusalCode, message: str) -> Refusal:
    """This command is not taken."""
    return Refusal(
        code=code,
        message=f"{command.kind} {command.order} of epoch {command.epoch}: {message}",
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind,
    )


def _epoch(command: Command, seen: SeenOrders) -> Refusal | None:
    if command.epoch >= seen.epoch:
        return None
    words = f"a leader of epoch {seen.epoch} has spoken; whoever wrote this leads no more"
    return make_refusal(command, RefusalCode.OLDER_EPOCH, words)


def _node(command: Command, place: AgentIdentity) -> Refusal | None:
    if command.node_uid == place.node_uid:
        return None
    words = f"it is for node uid {command.node_uid}, and {place.node} is {place.node_uid} now"
    return make_refusal(command, RefusalCode.OTHER_NODE, words)


def _order(command: Command, seen: SeenOrders) -> Refusal | None:
    if command.token < seen.order.token:
        words = f"token {seen.order.token} was seen; take one above it"
        return make_refusal(command, RefusalCode.OLDER_TOKEN, words)
    if command.order < seen.order:
        words = f"{seen.order} was seen; number it above that"
        return make_refusal(command, RefusalCode.OLDER_OP, words)
    begun = seen.begun
    if begun is None or begun.order != command.order or begun.fingerprint == fingerprint(command):
        return None
    words = f"{begun.order} was begun as another {begun.command}; number it above that"
    return make_refusal(command, RefusalCode.OLDER_OP, words)


def _boot(command: Command, place: AgentIdentity) -> Refusal | None:
    if command.boot_id == place.boot_id or is_permanent(command.kind):
        return None
    words = f"it is for boot {command.boot_id}, and this is {place.boot_id}"
    return make_refusal(command, RefusalCode.OTHER_BOOT, words)


def _kind(command: Command, place: AgentIdentity) -> Refusal | None:
    if command.kind not in COMMANDS.kinds:
        words = f"this release knows {', '.join(COMMANDS.kinds)}; upgrade the agent"
        return make_refusal(command, RefusalCode.UNKNOWN_KIND, words)
    if command.kind not in place.handles:
        words = f"{place.component} does {', '.join(place.handles)} only"
        return make_refusal(command, RefusalCode.NOT_FOR_ME, words)
    try:
        command.open()
    except MalformedMessage as error:
        return make_refusal(command, RefusalCode.UNREADABLE, str(error))
    return None


def expiry_refusal(command: Command, seen: SeenOrders, now: float) -> Refusal | None:
    """Why this command is not begun any more."""
    begun = seen.begun is not None and seen.begun.order == command.order
    if begun or now <= command.deadline or is_permanent(command.kind):
        return None
    words = f"its deadline was {now - command.deadline:.0f} s ago, and it was not begun"
    return make_refusal(command, RefusalCode.EXPIRED, words)


def is_permanent(kind: str) -> bool:
    """Whether it holds over boots and has no end.

    `idle` changes nothing on a node; it is what the slot of a node at rest says for ever, and what
    its agent looks for after a reboot or with its journal lost.
    """
    return kind == CommandKind.IDLE
