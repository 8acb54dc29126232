"""One identity's connection to the in-process server: the port's calls, and who may make them."""

import asyncio
from functools import partial

from libs.bus.permissions import Permissions
from libs.bus.port import (
    Closable,
    Follower,
    Forbidden,
    Handler,
    LastPerSubject,
    Link,
    NobodyThere,
    Start,
    Stored,
)
from libs.contracts.identities import Identity
from libs.contracts.streams import Stream
from libs.contracts.subjects import direct_get, inbox, js_api, matches
from libs.runtime.clock import Clock
from libs.testing.bus.broker import Broker
from libs.testing.bus.line import Line, fail, succeed
from libs.testing.bus.reading import Reading
from libs.testing.bus.subscription import Subscription
from libs.testing.bus.tap import Tap


class LocalBus:
    """A `Bus` in this process."""

    def __init__(
        self,
        *,
        line: Line,
        broker: Broker,
        clock: Clock,
        tap: Tap,
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
        self._readings: list[Reading] = []
        self._subscriptions: list[Subscription] = []
        self._subscriptions.append(self._subscription(f"{self._inbox}.*", "", self._answered))
        self._killed = False

    @property
    def identity(self) -> Identity:
        """Whose connection this is."""
        return self._line.identity

    @property
    def link(self) -> Link:
        """Whether the server is there."""
        return self._line.link

    @property
    def killed(self) -> bool:
        """Whether this connection is gone for good."""
        return self._killed

    def kill(self) -> None:
        """As when the process dies: nothing that it still does reaches the server."""
        if not self._killed:
            self._killed = True
            self._tap.tell("killed", self.identity, "")
            for reading in self._readings:
                self._broker.unread(reading)
            self._readings.clear()
            self.set_link(False)

    def set_link(self, up: bool) -> None:
        """For the server: the link came back or broke."""
        up = up and not self._killed
        if up == self.link.up:
            return
        self._tap.tell("up" if up else "down", self.identity, "")
        if up:
            for subscription in self._subscriptions:
                self._broker.listen(subscription)
            self.link.set(True)
            for reading in tuple(self._readings):
                reading.begin()
        else:
            self._line.cut()
            for subscription in self._subscriptions:
                self._broker.unlisten(subscription)
            self.link.set(False)
            for reading in tuple(self._readings):
                reading.interrupted()

    # Core messages.

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now."""
        self._must_be_allowed(subject)
        self._line.must_be_up(subject)
        self._tap.tell("publish", self.identity, subject, data)
        self._line.there(partial(self._broker.publish, subject, data, ""))

    async def subscribe(self, pattern: str, handler: Handler, *, group: str = "") -> Closable:
        """Hear what is sent from now on."""
        self._line.must_be_up(pattern)
        if self._may is not None and not _allowed(self._may.subscribe, pattern):
            raise Forbidden(f"{self.identity} may not subscribe to {pattern}")
        subscription = self._subscription(pattern, group, handler)
        self._subscriptions.append(subscription)
        try:
            await self._line.go(pattern, partial(self._broker.listen, subscription))
        except BaseException:
            self._forget_subscription(subscription)
            raise
        return subscription

    async def request(self, subject: str, data: bytes, *, timeout: float = 5.0) -> bytes:
        """Ask, and return the first answer."""
        self._must_be_allowed(subject)
        self._line.must_be_up(subject)
        self._tap.tell("ask", self.identity, subject, data)
        self._questions += 1
        reply = f"{self._inbox}.{self._questions}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def ask_there() -> None:
            if not self._broker.publish(subject, data, reply):
                nobody = NobodyThere(f"{subject}: nobody answers there now")
                self._line.back(partial(fail, answer, nobody))

        self._asked[reply] = answer
        self._line.there(ask_there)
        try:
            return await self._line.answer(answer, subject, timeout=timeout)
        finally:
            del self._asked[reply]

    def _answered(self, subject: str, data: bytes, _reply: str) -> None:
        answer = self._asked.get(subject)
        if answer is not None:
            succeed(answer, data)

    def _subscription(self, pattern: str, group: str, handler: Handler) -> Subscription:
        return Subscription(
            line=self._line,
            tap=self._tap,
            pattern=pattern,
            group=group,
            handler=handler,
            done=self._forget_subscription,
        )

    def _forget_subscription(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._broker.unlisten(subscription)

    # Streams.

    async def ensure(self, stream: Stream) -> None:
        """Make the stream agree with its page in contracts."""
        self._must_be_allowed(js_api("STREAM", "INFO", stream.name))
        self._ensured[stream.name] = stream
        self._tap.tell("ensure", self.identity, stream.name)
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
            self._tap.tell("store", self.identity, subject, data, sequence=sequence)
            return sequence

        return await self._line.call(subject, store_there)

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        """The last message of this subject."""
        self._must_be_allowed(direct_get(stream.name, subject))
        return await self._line.call(subject, lambda: self._broker.last(stream.name, subject))

    async def purge(self, stream: Stream, pattern: str) -> None:
        """Remove every message of these subjects."""
        self._must_be_allowed(js_api("STREAM", "PURGE", stream.name))
        self._tap.tell("purge", self.identity, pattern)
        await self._line.call(pattern, lambda: self._broker.purge(stream.name, pattern))

    async def follow(
        self, stream: Stream, pattern: str, follower: Follower, *, start: Start
    ) -> Closable:
        """Read a stream in order, over every interruption."""
        if not isinstance(start, LastPerSubject):
            self._must_be_allowed(js_api("STREAM", "INFO", stream.name))
        consumer = f"{self.identity.writer}-1"
        self._must_be_allowed(js_api("CONSUMER", "CREATE", stream.name, consumer, pattern))
        reading = Reading(
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
        if self.link.up:
            reading.begin()
        return reading

    def _forget_reading(self, reading: Reading) -> None:
        if reading in self._readings:
            self._readings.remove(reading)
        self._broker.unread(reading)

    def _must_be_allowed(self, subject: str) -> None:
        if self._may is not None and not _allowed(self._may.publish, subject):
            raise Forbidden(f"{self.identity} may not publish to {subject}")


def _allowed(rights: tuple[str, ...], pattern: str) -> bool:
    """Whether one right covers the whole pattern: `a.*` does not cover `a.>`."""
    return any(
        matches(right, pattern) and (right.endswith(">") or not pattern.endswith(">"))
        for right in rights
    )
