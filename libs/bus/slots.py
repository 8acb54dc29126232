"""The writer's side of slots: who gives commands, and who puts checks to components.

A slot is desired state. It is written by compare-and-set, never over what outranks the command,
and nothing is kept here to be sent later: after `Away` the caller, who knows what he wants now,
writes again. What a command means, and which one is wanted, is decided elsewhere.
"""

from typing import Generic, TypeVar

import msgspec

from libs.bus.port import Bus, SequenceConflict, StoredMessage
from libs.contracts import subjects
from libs.contracts.admission import fingerprint
from libs.contracts.commands import Check, CheckBody, Command, Order
from libs.contracts.message import MalformedMessage, decode, encode
from libs.contracts.streams import COMMANDS
from libs.runtime.clock import Clock

Content = TypeVar("Content", Command, Check)

TRIES = 8
"""Conflicts in one write after which a person should look: each means that somebody else wrote."""


class SlotValue(msgspec.Struct, Generic[Content], frozen=True, kw_only=True):
    """What a slot holds: a message, or why what is in it is none."""

    sequence: int
    data: bytes
    content: Content | None
    malformed: str = ""


class SlotWritten(msgspec.Struct, frozen=True):
    """The slot holds exactly this command."""

    sequence: int


class SlotOutranked(msgspec.Struct, frozen=True):
    """The slot holds a command that outranks this one, and was left alone."""

    by: Command


async def read_slot(
    bus: Bus, slot: subjects.Slot, kind: type[Content]
) -> SlotValue[Content] | None:
    """What the slot holds now, or None for an empty one."""
    stored = await bus.last(COMMANDS, str(slot))
    return None if stored is None else _opened(stored, kind)


def _opened(stored: StoredMessage, kind: type[Content]) -> SlotValue[Content]:
    try:
        content = decode(kind, stored.data)
    except MalformedMessage as error:
        return SlotValue(
            sequence=stored.sequence, data=stored.data, content=None, malformed=str(error)
        )
    return SlotValue(sequence=stored.sequence, data=stored.data, content=content)


def outranks(there: Command, command: Command) -> bool:
    """Whether what is in a slot must not be replaced by this command.

    One order for two different things outranks too: an agent may have begun the first, and would
    take the second for the same op. The writer has to number his anew.
    """
    if there.epoch > command.epoch:
        return True
    if there.node_uid != command.node_uid:
        return False
    if there.order != command.order:
        return there.order > command.order
    return fingerprint(there) != fingerprint(command)


def next_order(token: int, *known: Order | None) -> Order:
    """The first order of this token after all that are known: the slot's, the agent's reports'."""
    ops = (order.op for order in known if order is not None and order.token == token)
    return Order(token, 1 + max(ops, default=0))


class _Seen(msgspec.Struct, frozen=True):
    slot: SlotValue[Command] | None
    away: float


class SlotWriter:
    """Writes slots; remembers of each only what it saw last, which makes a write one round trip."""

    def __init__(self, *, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    async def read(self, slot: subjects.Command) -> SlotValue[Command] | None:
        """What the slot holds now, or None for an empty one."""
        return self._remember(slot, await read_slot(self._bus, slot, Command))

    async def write(self, slot: subjects.Command, command: Command) -> SlotWritten | SlotOutranked:
        """Make the slot hold this command, unless what it holds outranks it.

        What is there already counts as written, whoever wrote it: so a caller repeats after `Away`.
        """
        data = encode(command)
        there = await self._expected(slot, command, data)
        for _ in range(TRIES):
            if there is not None and there.data == data:
                return SlotWritten(there.sequence)
            if there is not None and there.content and outranks(there.content, command):
                return SlotOutranked(there.content)
            sequence = await self._replace(slot, there, data)
            if sequence is not None:
                self._remember(slot, SlotValue(sequence=sequence, data=data, content=command))
                return SlotWritten(sequence)
            there = await self.read(slot)
        raise SequenceConflict(
            f"{slot}: {command.kind} {command.order} was not written in {TRIES} tries, each time"
            f" something else was in the slot than had just been read; look who else writes it"
        )

    async def put_check(
        self, slot: subjects.Check, body: CheckBody, *, id: str, node_uid: str, boot_id: str
    ) -> Check:
        """Put a question; the newest of an asker counts, and its answer in `state` names its id."""
        check = Check.of(
            body,
            id=id,
            node=slot.node,
            node_uid=node_uid,
            boot_id=boot_id,
            now=self._clock.now(),
        )
        await self._bus.store(COMMANDS, str(slot), encode(check))
        return check

    async def _expected(
        self, slot: subjects.Command, command: Command, data: bytes
    ) -> SlotValue[Command] | None:
        """What is remembered, if a write may rest on it: after an outage it may be another one.

        Of a slot that was never seen nothing is expected; the bus says if something is there.
        """
        seen = self._seen.get(str(slot))
        if seen is None:
            return None
        if seen.away != self._bus.link.down_seconds:
            return await self.read(slot)
        there = seen.slot
        if there is None or (
            there.data != data and not (there.content and outranks(there.content, command))
        ):
            return there
        return await self.read(slot)

    async def _replace(
        self, slot: subjects.Command, there: SlotValue[Command] | None, data: bytes
    ) -> int | None:
        self._seen.pop(str(slot), None)
        try:
            return await self._bus.store(
                COMMANDS, str(slot), data, expect=there.sequence if there else 0
            )
        except SequenceConflict:
            return None

    def _remember(
        self, slot: subjects.Command, there: SlotValue[Command] | None
    ) -> SlotValue[Command] | None:
        self._seen[str(slot)] = _Seen(there, self._bus.link.down_seconds)
        return there
