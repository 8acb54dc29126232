"""A subscription on the in-process bus."""

import asyncio
from collections.abc import Callable
from functools import partial

from libs.bus.permissions import Permissions
from libs.bus.port import (
    BusLink,
    Closable,
    Follower,
    LastPerSubject,
    MessageHandler,
    NoResponders,
    StartFrom,
    StoredMessage,
    SubjectForbidden,
)
from libs.contracts.identities import Identity
from libs.contracts.streams import Stream
from libs.contracts.subjects import direct_get, inbox, js_api, matches
from libs.runtime.clock import Clock
from libs.testing.bus.broker import Broker
from libs.testing.bus.consumer import LocalConsumer
from libs.testing.bus.trace import BusTrace
from libs.testing.bus.transport import BusTransport, fail, succeed


class LocalSubscription:
    """Hears while the server knows it, and handles what had arrived when it was closed."""

    def __init__(
        self,
        *,
        line: BusTransport,
        tap: BusTrace,
        pattern: str,
        group: str,
        handler: MessageHandler,
        done: Callable[["LocalSubscription"], None],
    ) -> None:
        self.pattern = pattern
        self.group = group
        self._line = line
        self._tap = tap
        self._handler = handler
        self._done = done
        self._closed = False

    def deliver(self, subject: str, data: bytes, reply: str) -> None:
        """The server has something for it."""
        self._line.deliver(subject, data, partial(self._handle, subject, data, reply))

    def _handle(self, subject: str, data: bytes, reply: str) -> None:
        if not self._closed:
            self._tap.record("heard", self._line.identity, subject, data)
            self._handler(subject, data, reply)

    async def close(self) -> None:
        """Hear no more; what had arrived is still handled."""
        self._done(self)
        await self._line.flush()
        self._closed = True


class LocalBus:
    """A `Bus` in this process."""

    def __init__(
        self,
        *,
        line: BusTransport,
        broker: Broker,
        clock: Clock,
        tap: BusTrace,
        may: Permissions | None,
        number: int,
    ) -> None:
        self._line = line
        self._broker = broker
        self._clock = clock
        self._tap = tap
        self._may = may
        self._inbox = f"{inbox(line.identity)}.{number}"
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._questions = 0
        self._ensured: dict[str, Stream] = {}
        self._readings: list[LocalConsumer] = []
        self._subscriptions: list[LocalSubscription] = []
        self._subscriptions.append(self._subscription(f"{self._inbox}.*", "", self._answered))
        self._killed = False

    @property
    def identity(self) -> Identity:
        """Whose connection this is."""
        return self._line.identity

    @property
    def link(self) -> BusLink:
        """Whether the server is there."""
        return self._line.link

    @property
    def is_killed(self) -> bool:
        """Whether this connection is gone for good."""
        return self._killed

    def kill(self) -> None:
        """As when the process dies: nothing that it still does reaches the server."""
        if not self._killed:
            self._killed = True
            self._tap.record("killed", self.identity, "")
            for reading in self._readings:
                self._broker.remove_consumer(reading)
            self._readings.clear()
            self.set_link(False)

    def set_link(self, up: bool) -> None:
        """For the server: the link came back or broke."""
        up = up and not self._killed
        if up == self.link.is_up:
            return
        self._tap.record("up" if up else "down", self.identity, "")
        if up:
            for subscription in self._subscriptions:
                self._broker.add_subscriber(subscription)
            self.link.set(True)
            for reading in tuple(self._readings):
                reading.begin()
        else:
            self._line.cut()
            for subscription in self._subscriptions:
                self._broker.remove_subscriber(subscription)
            self.link.set(False)
            for reading in tuple(self._readings):
                reading.interrupted()

    # Core messages.

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now."""
        self._must_be_allowed(subject)
        self._line.require_up(subject)
        self._tap.record("publish", self.identity, subject, data)
        self._line.to_server(partial(self._broker.publish, subject, data, ""))

    async def subscribe(
        self, pattern: str, handler: MessageHandler, *, group: str = ""
    ) -> Closable:
        """Hear what is sent from now on."""
        self._line.require_up(pattern)
        if self._may is not None and not _allowed(self._may.subscribe, pattern):
            raise SubjectForbidden(f"{self.identity} may not subscribe to {pattern}")
        subscription = self._subscription(pattern, group, handler)
        self._subscriptions.append(subscription)
        try:
            await self._line.call_with(pattern, partial(self._broker.add_subscriber, subscription))
        except BaseException:
            self._forget_subscription(subscription)
            raise
        return subscription

    async def request(self, subject: str, data: bytes, *, timeout: float = 5.0) -> bytes:
        """Ask, and return the first answer."""
        self._must_be_allowed(subject)
        self._line.require_up(subject)
        self._tap.record("ask", self.identity, subject, data)
        self._questions += 1
        reply = f"{self._inbox}.{self._questions}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def ask_there() -> None:
            if not self._broker.publish(subject, data, reply):
                nobody = NoResponders(f"{subject}: nobody answers there now")
                self._line.to_client(partial(fail, answer, nobody))

        self._asked[reply] = answer
        self._line.to_server(ask_there)
        try:
            return await self._line.await_answer(answer, subject, timeout=timeout)
        finally:
            del self._asked[reply]

    def _answered(self, subject: str, data: bytes, _reply: str) -> None:
        answer = self._asked.get(subject)
        if answer is not None:
            succeed(answer, data)

    def _subscription(self, pattern: str, group: str, handler: MessageHandler) -> LocalSubscription:
        return LocalSubscription(
            line=self._line,
            tap=self._tap,
            pattern=pattern,
            group=group,
            handler=handler,
            done=self._forget_subscription,
        )

    def _forget_subscription(self, subscription: LocalSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._broker.remove_subscriber(subscription)

    # Streams.

    async def ensure(self, stream: Stream) -> None:
        """Make the stream agree with its page in contracts."""
        self._must_be_allowed(js_api("STREAM", "INFO", stream.name))
        self._ensured[stream.name] = stream
        self._tap.record("ensure", self.identity, stream.name)
        await self._line.call(stream.name, lambda: self._ensure_there(stream))

    def _ensure_there(self, stream: Stream) -> None:
        if not self._broker.agrees(stream):
            self._must_be_allowed(js_api("STREAM", "CREATE", stream.name))
            self._broker.ensure(stream)

    def _make_again_there(self, name: str) -> None:
        """A stream that this connection had ensured, and that is gone, is made anew."""
        stream = self._ensured.get(name)
        if stream is not None and not self._broker.has(name):
            self._ensure_there(stream)

    async def store(
        self, stream: Stream, subject: str, data: bytes, *, expect: int | None = None, id: str = ""
    ) -> int:
        """Store, and return the sequence."""
        self._must_be_allowed(subject)

        def store_there() -> int:
            self._make_again_there(stream.name)
            sequence = self._broker.store(stream.name, subject, data, expect=expect, id=id)
            self._tap.record("store", self.identity, subject, data, sequence=sequence)
            return sequence

        return await self._line.call(subject, store_there)

    async def last(self, stream: Stream, subject: str) -> StoredMessage | None:
        """The last message of this subject."""
        self._must_be_allowed(direct_get(stream.name, subject))
        return await self._line.call(subject, lambda: self._broker.last(stream.name, subject))

    async def purge(self, stream: Stream, pattern: str) -> None:
        """Remove every message of these subjects."""
        self._must_be_allowed(js_api("STREAM", "PURGE", stream.name))
        self._tap.record("purge", self.identity, pattern)
        await self._line.call(pattern, lambda: self._broker.purge(stream.name, pattern))

    async def follow(
        self, stream: Stream, pattern: str, follower: Follower, *, start: StartFrom
    ) -> Closable:
        """Read a stream in order, over every interruption."""
        if not isinstance(start, LastPerSubject):
            self._must_be_allowed(js_api("STREAM", "INFO", stream.name))
        consumer = f"{self.identity.writer}-1"
        self._must_be_allowed(js_api("CONSUMER", "CREATE", stream.name, consumer, pattern))
        reading = LocalConsumer(
            line=self._line,
            broker=self._broker,
            clock=self._clock,
            tap=self._tap,
            stream=stream,
            pattern=pattern,
            follower=follower,
            start=start,
            make_again=partial(self._make_again_there, stream.name),
            done=self._forget_reading,
        )
        if not self._killed:
            self._readings.append(reading)
        if self.link.is_up:
            reading.begin()
        return reading

    def _forget_reading(self, reading: LocalConsumer) -> None:
        if reading in self._readings:
            self._readings.remove(reading)
        self._broker.remove_consumer(reading)

    def _must_be_allowed(self, subject: str) -> None:
        if self._may is not None and not _allowed(self._may.publish, subject):
            raise SubjectForbidden(f"{self.identity} may not publish to {subject}")


def _allowed(rights: tuple[str, ...], pattern: str) -> bool:
    """Whether one right covers the whole pattern: `a.*` does not cover `a.>`."""
    return any(
        matches(right, pattern) and (right.endswith(">") or not pattern.endswith(">"))
        for right in rights
    )
