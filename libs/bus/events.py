"""Publish events in order, and read them back from their stream."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final, Self, TypeAlias

import msgspec

from libs.bus.port import (
    Bus,
    BusError,
    BusUnavailable,
    Closable,
    FromSequence,
    StartFrom,
    StoredMessage,
)
from libs.contracts import subjects
from libs.contracts.events import Event, EventBody
from libs.contracts.message import MalformedMessage, decode, encode
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.logs import logger

MAX_WAITING: Final = 2_000
"""Unsent events that a publisher keeps; beyond that the oldest is dropped."""

MAX_BUFFERED: Final = 10_000
"""Messages that a reader buffers before it unsubscribes, to resume once it has caught up."""

FIRST: Final = FromSequence()

_log = logger()


class EventPublisher:
    """Publish the events of one writer, without blocking the writer."""

    def __init__(self, *, bus: Bus, env: Env, on_dropped: Callable[[], None]) -> None:
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._on_dropped = on_dropped
        self._waiting: deque[Event] = deque()
        self._added = asyncio.Event()

    def publish(
        self, body: EventBody, *, id: str, message: str, node: str = "", node_uid: str = ""
    ) -> None:
        """Queue an event; `id` is the same in every process that publishes this event."""
        event = Event.of(
            body,
            id=id,
            at=self._clock.now(),
            writer=self._bus.identity.writer,
            message=message,
            node=node,
            node_uid=node_uid,
        )
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._on_dropped()
        self._waiting.append(event)
        self._added.set()

    async def run(self) -> None:
        """Send queued events until cancelled; wait while the bus is unavailable."""
        backoff = Backoff(self._random, first=0.5, cap=10.0)
        while True:
            while not self._waiting:
                self._added.clear()
                await self._added.wait()
            event = self._waiting[0]
            try:
                await self._send(event)
            except BusUnavailable:
                await self._clock.sleep(0.1 + backoff.next())
                continue
            except BusError as error:
                _log.warning(
                    "the bus did not accept an event", error=str(error), message=event.message
                )
                self._on_dropped()
            backoff.reset()
            if self._waiting and self._waiting[0] is event:
                self._waiting.popleft()

    async def _send(self, event: Event) -> None:
        cluster = self._bus.identity.cluster
        subject = subjects.Event(
            cluster=cluster, node=event.node, writer=event.writer, kind=event.kind
        )
        await self._bus.store(subjects.EVENTS, str(subject), encode(event), id=event.id)


class RecordedEvent(msgspec.Struct, frozen=True):
    """A well-formed event of the writer that its subject names."""

    sequence: int
    time: float
    """Unix seconds, by the server."""
    event: Event


class MalformedEvent(msgspec.Struct, frozen=True):
    """A message that cannot be decoded as an event."""

    sequence: int
    time: float
    subject: str
    why: str


class ForeignEvent(msgspec.Struct, frozen=True):
    """An event whose node, writer or kind differs from its subject: probably forged."""

    sequence: int
    time: float
    subject: str
    event: Event


StoredEvent: TypeAlias = RecordedEvent | MalformedEvent | ForeignEvent


@asynccontextmanager
async def read_events(
    *, bus: Bus, cluster: str, follow: bool = False, start: StartFrom = FIRST
) -> AsyncGenerator[AsyncIterator[StoredEvent]]:
    """Read all events in order: those stored now or, with `follow`, new ones too, without end."""
    reader = _EventReader(bus=bus, cluster=cluster, follow=follow, start=start)
    try:
        yield reader
    finally:
        await reader.stop()


class _EventReader:
    """Buffer the messages of the stream until the iteration reads them."""

    def __init__(self, *, bus: Bus, cluster: str, follow: bool, start: StartFrom) -> None:
        self._bus = bus
        self._cluster = cluster
        self._start = start
        self._follow = follow
        self._buffer: deque[StoredMessage] = deque()
        self._complete = False
        self._changed = asyncio.Event()
        self._subscription: Closable | None = None
        self._parse = lru_cache(maxsize=4096)(subjects.parse)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredEvent:
        if len(self._buffer) > MAX_BUFFERED:
            await self.stop()
        while not self._buffer:
            if self._subscription is None:
                self._complete = False
                pattern = subjects.cluster_pattern(subjects.Event, self._cluster)
                self._subscription = await self._bus.follow(
                    subjects.EVENTS, pattern, self, start=self._start
                )
            elif self._complete and not self._follow:
                raise StopAsyncIteration
            else:
                self._changed.clear()
                await self._changed.wait()
        return self._decode(self._buffer.popleft())

    async def stop(self) -> None:
        """Unsubscribe; buffered messages can still be read."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()

    # Called by the bus (`Follower`).

    def began(self, _recreated: bool, /) -> None: ...

    def received(self, message: StoredMessage) -> None:
        self._buffer.append(message)
        self._start = FromSequence(message.sequence + 1)
        self._changed.set()

    def caught_up(self) -> None:
        self._complete = True
        self._changed.set()

    def lost(self) -> None: ...

    def _decode(self, stored: StoredMessage) -> StoredEvent:
        try:
            event = decode(Event, stored.data)
            subject = self._parse(stored.subject)
        except (MalformedMessage, subjects.NotASubject) as error:
            return MalformedEvent(stored.sequence, stored.time, stored.subject, str(error))
        claimed = subjects.Event(
            cluster=self._cluster, node=event.node, writer=event.writer, kind=event.kind
        )
        if subject != claimed:
            return ForeignEvent(stored.sequence, stored.time, stored.subject, event)
        return RecordedEvent(stored.sequence, stored.time, event)
