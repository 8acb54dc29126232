"""Write commands and checks into the slots of components.

A slot is desired state. A command is written by compare-and-set, and never over one that outranks
it. Nothing is queued: after `BusUnavailable` the caller decides again what to write.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from libs.bus.port import Bus, BusUnavailable, MessageHandler, SequenceConflict
from libs.contracts import subjects
from libs.contracts.admission import fingerprint
from libs.contracts.commands import Check, CheckBody, Command
from libs.contracts.message import MalformedMessage, decode, encode
from libs.contracts.subjects import COMMANDS
from libs.runtime.clock import Backoff, Clock
from libs.runtime.env import Env

Content = TypeVar("Content", Command, Check)

TRIES = 8
"""Conflicts in one write after which it fails: each means that another process wrote the slot."""


class SlotValue(msgspec.Struct, Generic[Content], frozen=True, kw_only=True):
    """The value of a slot; `content` is None if the message is malformed."""

    sequence: int
    data: bytes
    content: Content | None
    malformed: str = ""


class SlotWritten(msgspec.Struct, frozen=True):
    """The slot holds exactly this command."""

    sequence: int


class SlotOutranked(msgspec.Struct, frozen=True):
    """The slot holds a command that outranks this one, and was not changed."""

    by: Command


async def read_slot(
    bus: Bus, slot: subjects.Slot, kind: type[Content]
) -> SlotValue[Content] | None:
    """Return the content of the slot; None if it is empty."""
    stored = await bus.last(COMMANDS, str(slot))
    if stored is None:
        return None
    content, malformed = None, ""
    try:
        content = decode(kind, stored.data)
    except MalformedMessage as error:
        malformed = str(error)
    return SlotValue(
        sequence=stored.sequence, data=stored.data, content=content, malformed=malformed
    )


def outranks(stored: Command, command: Command) -> bool:
    """Return whether a stored command must not be replaced by this one.

    A different command of the same order outranks too: an agent may have started the stored one
    and would treat the other as the same op. The writer must use a new order.
    """
    if stored.epoch > command.epoch:
        return True
    if stored.node_uid != command.node_uid:
        return False
    if stored.order != command.order:
        return stored.order > command.order
    return fingerprint(stored) != fingerprint(command)


class _CachedSlot(msgspec.Struct, frozen=True):
    value: SlotValue[Command] | None
    down_seconds: float
    """`BusLink.down_seconds` when it was cached: another process may write during an outage."""


class SlotWriter:
    """Write slots; cache the last value of each, so that a write is one round trip."""

    def __init__(self, *, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._cache: dict[str, _CachedSlot] = {}

    async def read(self, slot: subjects.Command) -> SlotValue[Command] | None:
        """Return the content of the slot; None if it is empty."""
        return self._remember(slot, await read_slot(self._bus, slot, Command))

    async def write(self, slot: subjects.Command, command: Command) -> SlotWritten | SlotOutranked:
        """Make the slot hold this command, unless its current command outranks it.

        Idempotent: repeat the call after `BusUnavailable`.
        """
        data = encode(command)
        value = await self._expected(slot, command, data)
        for _ in range(TRIES):
            if value is not None and value.data == data:
                return SlotWritten(value.sequence)
            if value is not None and value.content and outranks(value.content, command):
                return SlotOutranked(value.content)
            sequence = await self._replace(slot, value, data)
            if sequence is not None:
                self._remember(slot, SlotValue(sequence=sequence, data=data, content=command))
                return SlotWritten(sequence)
            value = await self.read(slot)
        raise SequenceConflict(
            f"{slot}: {command.kind} {command.order} was not written in {TRIES} tries, because"
            " another process changed the slot each time; find out which"
        )

    async def put_check(
        self, slot: subjects.Check, body: CheckBody, *, id: str, node_uid: str, boot_id: str
    ) -> Check:
        """Replace the asker's check; the report that answers it has its id."""
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
        """Return the value that a compare-and-set can expect; read it if the cache may be stale.

        A slot that was never read is expected to be empty; otherwise the write conflicts.
        """
        cached = self._cache.get(str(slot))
        if cached is None:
            return None
        if cached.down_seconds != self._bus.link.down_seconds:
            return await self.read(slot)
        value = cached.value
        if value is None or (
            value.data != data and not (value.content and outranks(value.content, command))
        ):
            return value
        return await self.read(slot)

    async def _replace(
        self, slot: subjects.Command, value: SlotValue[Command] | None, data: bytes
    ) -> int | None:
        self._cache.pop(str(slot), None)
        try:
            return await self._bus.store(
                COMMANDS, str(slot), data, expect=value.sequence if value else 0
            )
        except SequenceConflict:
            return None

    def _remember(
        self, slot: subjects.Command, value: SlotValue[Command] | None
    ) -> SlotValue[Command] | None:
        self._cache[str(slot)] = _CachedSlot(value, self._bus.link.down_seconds)
        return value


READS = 4
"""Reads after which an answer that seems to lag behind is accepted."""


async def watch_notifications(
    *,
    bus: Bus,
    env: Env,
    pattern: str,
    handler: MessageHandler,
    on_subscribed: Callable[[], None],
) -> None:
    """Receive notifications until cancelled; call `on_subscribed` once the subscription is made."""
    backoff = Backoff(env.random)
    while True:
        try:
            subscription = await bus.subscribe(pattern, handler)
            break
        except BusUnavailable:
            await env.clock.sleep(backoff.next())
    try:
        on_subscribed()
        await asyncio.Event().wait()
    finally:
        await subscription.close()


class SlotReader(Generic[Content]):
    """Read one slot. The caller must not read concurrently."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        slot: subjects.Slot,
        kind: type[Content],
    ) -> None:
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._slot = slot
        self._kind: type[Content] = kind
        self._hint: bytes | None = None
        self._sequence = 0
        self._reads = 0
        self.has_changed = False
        """Whether the last two reads returned different messages."""

    def notified(self, data: bytes) -> None:
        """Store the written data, only to compare it with the next read."""
        self._hint = data

    async def read(self) -> SlotValue[Content] | None:
        """Return the content of the slot; None if it is empty. Raise `BusError`."""
        pauses = Backoff(self._random, first=0.05, cap=1.0)
        hint, self._hint = self._hint, None
        slot = await read_slot(self._bus, self._slot, self._kind)
        for _ in range(READS - 1):
            if not self._is_behind(slot, hint):
                break
            await self._clock.sleep(pauses.next())
            slot = await read_slot(self._bus, self._slot, self._kind)
        # If it is still behind, the stream was lost and its sequence numbers restarted at 1.
        sequence = slot.sequence if slot else 0
        self.has_changed = self._reads > 0 and sequence != self._sequence
        self._reads += 1
        self._sequence = sequence
        return slot

    def _is_behind(self, slot: SlotValue[Content] | None, hint: bytes | None) -> bool:
        if slot is None:
            return self._sequence > 0 or hint is not None
        if slot.sequence == self._sequence:
            return hint is not None and slot.data != hint
        return slot.sequence < self._sequence
