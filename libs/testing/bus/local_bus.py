"""`Bus` inside the process."""

import asyncio
from collections.abc import Callable
from functools import partial

from libs.bus.permissions import Permissions
from libs.bus.port import (
    BusLink,
    BusUnavailable,
    Closable,
    Follower,
    LastPerSubject,
    MessageHandler,
    NoResponders,
    StartFrom,
    StoredMessage,
    SubjectForbidden,
)
from libs.bus.rates import Admits
from libs.contracts.identities import Identity
from libs.contracts.subjects import Stream, direct_get, inbox, js_api, matches
from libs.runtime.clock import Clock
from libs.testing.bus.broker import Broker
from libs.testing.bus.consumer import LocalConsumer
from libs.testing.bus.transport import BusTrace, BusTransport, fail, succeed


class LocalSubscription:
    def __init__(
        self,
        *,
        transport: BusTransport,
        trace: BusTrace,
        pattern: str,
        group: str,
        handler: MessageHandler,
        on_close: Callable[["LocalSubscription"], None],
    ) -> None:
        self.pattern = pattern
        self.group = group
        self._transport = transport
        self._trace = trace
        self._handler = handler
        self._on_close = on_close
        self._closed = False

    def deliver(self, subject: str, data: bytes, reply: str) -> None:
        self._transport.deliver(subject, data, partial(self._handle, subject, data, reply))

    def _handle(self, subject: str, data: bytes, reply: str) -> None:
        if not self._closed:
            self._trace.record("heard", self._transport.identity, subject, data)
            self._handler(subject, data, reply)

    async def close(self) -> None:
        self._on_close(self)
        await self._transport.flush()
        self._closed = True


class LocalBus:
    def __init__(
        self,
        *,
        transport: BusTransport,
        broker: Broker,
        clock: Clock,
        trace: BusTrace,
        allowed: Permissions | None,
        number: int,
    ) -> None:
        self._transport = transport
        self._broker = broker
        self._clock = clock
        self._trace = trace
        self._allowed = allowed
        self._inbox = f"{inbox(transport.identity)}.{number}"
        self._requests: dict[str, asyncio.Future[bytes]] = {}
        self._gathered: dict[str, list[bytes]] = {}
        self._request_count = 0
        self._ensured: dict[str, Stream] = {}
        self._consumers: list[LocalConsumer] = []
        self._subscriptions: list[LocalSubscription] = []
        self._subscriptions.append(self._subscription(f"{self._inbox}.*", "", self._on_answer))
        self._killed = False

    @property
    def identity(self) -> Identity:
        return self._transport.identity

    @property
    def link(self) -> BusLink:
        return self._transport.link

    @property
    def is_killed(self) -> bool:
        return self._killed

    def kill(self) -> None:
        """Break the link for good, as when the process dies."""
        if not self._killed:
            self._killed = True
            self._trace.record("killed", self.identity, "")
            for consumer in self._consumers:
                self._broker.remove_consumer(consumer)
            self._consumers.clear()
            self.set_link(False)

    def set_link(self, up: bool) -> None:
        """Connect or disconnect. Called by the server."""
        up = up and not self._killed
        if up == self.link.is_up:
            return
        self._trace.record("up" if up else "down", self.identity, "")
        if up:
            for subscription in self._subscriptions:
                self._broker.add_subscriber(subscription)
            self.link.set(True)
            for consumer in tuple(self._consumers):
                consumer.begin()
        else:
            self._transport.cut()
            for subscription in self._subscriptions:
                self._broker.remove_subscriber(subscription)
            self.link.set(False)
            for consumer in tuple(self._consumers):
                consumer.interrupted()

    # Core messages.

    async def publish(self, subject: str, data: bytes) -> None:
        self._require_allowed(subject)
        self._transport.require_up(subject)
        self._trace.record("publish", self.identity, subject, data)
        self._transport.to_server(partial(self._broker.publish, subject, data, ""))

    async def subscribe(
        self,
        pattern: str,
        handler: MessageHandler,
        *,
        group: str = "",
        admits: Admits | None = None,
    ) -> Closable:
        self._transport.require_up(pattern)
        if self._allowed is not None and not _covers(self._allowed.subscribe, pattern):
            raise SubjectForbidden(f"{self.identity} may not subscribe to {pattern}")
        subscription = self._subscription(pattern, group, _admitted(handler, admits))
        self._subscriptions.append(subscription)
        try:
            await self._transport.call_with(
                pattern, partial(self._broker.add_subscriber, subscription)
            )
        except BaseException:
            self._forget_subscription(subscription)
            raise
        return subscription

    async def request(self, subject: str, data: bytes, *, timeout: float = 5.0) -> bytes:
        reply, answer = self._send_request(subject, data)
        try:
            return await self._transport.await_answer(answer, subject, timeout=timeout)
        finally:
            del self._requests[reply]

    async def request_all(self, subject: str, data: bytes, *, within: float) -> list[bytes]:
        reply, failure = self._send_request(subject, data)
        gathered = self._gathered[reply] = []
        try:
            await self._transport.await_answer(failure, subject, timeout=within)
        except BusUnavailable:
            if not self.link.is_up:
                raise
        finally:
            del self._requests[reply], self._gathered[reply]
        return gathered

    def _send_request(self, subject: str, data: bytes) -> tuple[str, asyncio.Future[bytes]]:
        """Return the reply subject, and the first answer."""
        self._require_allowed(subject)
        self._transport.require_up(subject)
        self._trace.record("ask", self.identity, subject, data)
        self._request_count += 1
        reply = f"{self._inbox}.{self._request_count}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def request_at_server() -> None:
            if not self._broker.publish(subject, data, reply):
                error = NoResponders(f"{subject}: no process answers on this subject")
                self._transport.to_client(partial(fail, answer, error))

        self._requests[reply] = answer
        self._transport.to_server(request_at_server)
        return reply, answer

    def _on_answer(self, subject: str, data: bytes, _reply: str) -> None:
        if subject in self._gathered:
            self._gathered[subject].append(data)
            return
        answer = self._requests.get(subject)
        if answer is not None:
            succeed(answer, data)

    def _subscription(self, pattern: str, group: str, handler: MessageHandler) -> LocalSubscription:
        return LocalSubscription(
            transport=self._transport,
            trace=self._trace,
            pattern=pattern,
            group=group,
            handler=handler,
            on_close=self._forget_subscription,
        )

    def _forget_subscription(self, subscription: LocalSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._broker.remove_subscriber(subscription)

    # Streams.

    async def ensure(self, stream: Stream) -> None:
        self._require_allowed(js_api("STREAM", "INFO", stream.name))
        self._ensured[stream.name] = stream
        self._trace.record("ensure", self.identity, stream.name)
        await self._transport.call(stream.name, lambda: self._ensure_at_server(stream))

    def _ensure_at_server(self, stream: Stream) -> None:
        if not self._broker.agrees(stream):
            self._require_allowed(js_api("STREAM", "CREATE", stream.name))
            self._broker.ensure(stream)

    def _recreate_stream_at_server(self, name: str) -> None:
        """Recreate a lost stream that this connection had ensured."""
        stream = self._ensured.get(name)
        if stream is not None and not self._broker.has(name):
            self._ensure_at_server(stream)

    async def store(
        self, stream: Stream, subject: str, data: bytes, *, expect: int | None = None, id: str = ""
    ) -> int:
        self._require_allowed(subject)

        def store_at_server() -> int:
            self._recreate_stream_at_server(stream.name)
            sequence = self._broker.store(stream.name, subject, data, expect=expect, id=id)
            self._trace.record("store", self.identity, subject, data, sequence=sequence)
            return sequence

        return await self._transport.call(subject, store_at_server)

    async def last(self, stream: Stream, subject: str) -> StoredMessage | None:
        self._require_allowed(direct_get(stream.name, subject))
        return await self._transport.call(subject, lambda: self._broker.last(stream.name, subject))

    async def purge(self, stream: Stream, pattern: str) -> None:
        self._require_allowed(js_api("STREAM", "PURGE", stream.name))
        self._trace.record("purge", self.identity, pattern)
        await self._transport.call(pattern, lambda: self._broker.purge(stream.name, pattern))

    async def follow(
        self, stream: Stream, pattern: str, follower: Follower, *, start: StartFrom
    ) -> Closable:
        if not isinstance(start, LastPerSubject):
            self._require_allowed(js_api("STREAM", "INFO", stream.name))
        name = f"{self.identity.writer}-1"
        self._require_allowed(js_api("CONSUMER", "CREATE", stream.name, name, pattern))
        consumer = LocalConsumer(
            transport=self._transport,
            broker=self._broker,
            clock=self._clock,
            trace=self._trace,
            stream=stream,
            pattern=pattern,
            follower=follower,
            start=start,
            recreate_stream=partial(self._recreate_stream_at_server, stream.name),
            on_close=self._forget_consumer,
        )
        if not self._killed:
            self._consumers.append(consumer)
        if self.link.is_up:
            consumer.begin()
        return consumer

    def _forget_consumer(self, consumer: LocalConsumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self._broker.remove_consumer(consumer)

    def _require_allowed(self, subject: str) -> None:
        if self._allowed is not None and not _covers(self._allowed.publish, subject):
            raise SubjectForbidden(f"{self.identity} may not publish to {subject}")


def _covers(rights: tuple[str, ...], pattern: str) -> bool:
    """Return whether one right covers the whole pattern: `a.*` does not cover `a.>`."""
    return any(
        matches(right, pattern) and (right.endswith(">") or not pattern.endswith(">"))
        for right in rights
    )


def _admitted(handler: MessageHandler, admits: Admits | None) -> MessageHandler:
    """Return a handler of the messages that are admitted."""

    def received(subject: str, data: bytes, reply: str) -> None:
        if admits is None or admits(subject):
            handler(subject, data, reply)

    return received
