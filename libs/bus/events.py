"""Events on the bus: in order, each with a name that it keeps, and never in anybody's way.

What cannot be sent waits; when too much waits, the oldest goes. What happened is not known here.
"""

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
    FromTime,
    StoredMessage,
)
from libs.contracts import message, streams, subjects
from libs.contracts.events import Event, EventBody
from libs.contracts.message import decode, encode
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env
from libs.runtime.logs import logger

MAX_WAITING: Final = 2_000

_log = logger()


class EventPublisher:
    """One writer's events; they are sent while `run` does."""

    def __init__(self, *, bus: Bus, env: Env, on_dropped: Callable[[], None]) -> None:
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._dropped = on_dropped
        self._waiting: deque[Event] = deque()
        self._there = asyncio.Event()

    def publish(
        self, body: EventBody, *, id: str, message: str, node: str = "", node_uid: str = ""
    ) -> None:
        """`id` is the same for the same event, whoever tells it."""
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
            self._dropped()
        self._waiting.append(event)
        self._there.set()

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(self._random, first=0.5, cap=10.0)
        while True:
            while not self._waiting:
                self._there.clear()
                await self._there.wait()
            event = self._waiting[0]
            try:
                await self._send(event)
            except BusUnavailable:
                await self._clock.sleep(0.1 + backoff.next())
                continue
            except BusError as error:
                _log.warning("an event was not taken", why=str(error), said=event.message)
                self._dropped()
            backoff.reset()
            if self._waiting and self._waiting[0] is event:
                self._waiting.popleft()

    async def _send(self, event: Event) -> None:
        subject = subjects.Event(
            cluster=self._bus.identity.cluster,
            node=event.node,
            writer=event.writer,
            kind=event.kind,
        )
        await self._bus.store(streams.EVENTS, str(subject), encode(event), id=event.id)


RETRY_FIRST = 0.5
RETRY_CAP = 10.0

MAX_BUFFERED = 10_000
"""Messages that a reading holds before it stops the stream and lets its reader come after."""


class ChronicleFull(BusError):
    """Too many events wait for the bus. This one was not taken."""


class Chronicle:
    """One writer's events."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        waiting: int = 1_000,
    ) -> None:
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._ids = env.ids
        self._most = waiting
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Events that the server has not acknowledged yet."""
        return self._waiting

    async def publish(
        self, body: EventBody, *, message: str, node: str = "", node_uid: str = ""
    ) -> None:
        """Return when the server has the event. Raises `ChronicleFull` at once if too many wait."""
        me = self._bus.identity
        event = Event.of(
            body,
            id=self._ids.new(),
            at=self._clock.now(),
            writer=me.writer,
            message=message,
            node=node or me.node,
            node_uid=node_uid,
        )
        if self._waiting >= self._most:
            raise ChronicleFull(
                f"event {event.kind} ({message}) was not taken: {self._waiting} events wait for the"
                f" bus already; it is {'slow' if self._bus.link.is_up else 'away'}, try again later"
            )
        subject = subjects.Event(
            cluster=me.cluster, node=event.node, writer=event.writer, kind=event.kind
        )
        self._waiting += 1
        try:
            await self._store(str(subject), encode(event), event.id)
        finally:
            self._waiting -= 1

    async def _store(self, subject: str, data: bytes, id: str) -> None:
        backoff = Backoff(self._random, first=RETRY_FIRST, cap=RETRY_CAP)
        while True:
            try:
                await self._bus.store(streams.EVENTS, subject, data, id=id)
            except BusUnavailable:
                await self._clock.sleep(backoff.next())
            else:
                return


class RecordedEvent(msgspec.Struct, frozen=True):
    """An event, as its writer wrote it."""

    sequence: int
    time: float
    """Unix seconds, by the server."""
    event: Event


class MalformedEvent(msgspec.Struct, frozen=True):
    """A message that is no event, and why."""

    sequence: int
    time: float
    subject: str
    why: str


class ForeignEvent(msgspec.Struct, frozen=True):
    """An event that names another writer, node or kind than its subject: not that writer's."""

    sequence: int
    time: float
    subject: str
    event: Event


StoredEvent: TypeAlias = RecordedEvent | MalformedEvent | ForeignEvent


@asynccontextmanager
async def read_events(
    *,
    bus: Bus,
    cluster: str,
    start: FromSequence | FromTime,
    node: str = subjects.ANY,
    writer: str = subjects.ANY,
    kind: str = subjects.ANY,
    follow: bool = False,
) -> AsyncGenerator[AsyncIterator[StoredEvent]]:
    """Read what happened, in order; up to what is there now, or, with `follow`, without end."""
    pattern = str(subjects.Event(cluster=cluster, node=node, writer=writer, kind=kind))
    reading = _EventReader(bus=bus, pattern=pattern, start=start, follow=follow)
    try:
        yield reading
    finally:
        await reading.stop()


class _EventReader:
    """Between a stream that pushes and a reader that pulls; holds up to `MAX_BUFFERED`."""

    def __init__(
        self, *, bus: Bus, pattern: str, start: FromSequence | FromTime, follow: bool
    ) -> None:
        self._bus = bus
        self._pattern = pattern
        self._start: FromSequence | FromTime = start
        self._to_the_end = not follow
        self._held: deque[StoredMessage] = deque()
        self._complete = False
        self._news = asyncio.Event()
        self._following: Closable | None = None
        self._parse = lru_cache(maxsize=4096)(subjects.parse)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredEvent:
        if len(self._held) > MAX_BUFFERED:
            await self.stop()
        while not self._held:
            if self._following is None:
                self._complete = False
                self._following = await self._bus.follow(
                    streams.EVENTS, self._pattern, self, start=self._start
                )
            elif self._complete and self._to_the_end:
                raise StopAsyncIteration
            else:
                self._news.clear()
                await self._news.wait()
        return self._entry(self._held.popleft())

    async def stop(self) -> None:
        """End the reading; what it has handed over is kept."""
        following, self._following = self._following, None
        if following is not None:
            await following.close()

    # What the bus calls (`Follower`).

    def began(self) -> None:
        """The numbers may begin again at 1."""

    def received(self, message: StoredMessage) -> None:
        """Hold it for the reader."""
        self._held.append(message)
        self._start = FromSequence(message.sequence + 1)
        self._news.set()

    def caught_up(self) -> None:
        """Everything that was there has been handed over."""
        self._complete = True
        self._news.set()

    def lost(self) -> None:
        """The reading goes on where it stopped, when the bus is there again."""

    def _entry(self, stored: StoredMessage) -> StoredEvent:
        try:
            event = decode(Event, stored.data)
            of = self._parse(stored.subject)
        except (message.MalformedMessage, subjects.NotASubject) as error:
            return MalformedEvent(stored.sequence, stored.time, stored.subject, str(error))
        claimed = (event.node, event.writer, event.kind)
        if not isinstance(of, subjects.Event) or claimed != (of.node, of.writer, of.kind):
            return ForeignEvent(stored.sequence, stored.time, stored.subject, event)
        return RecordedEvent(stored.sequence, stored.time, event)
