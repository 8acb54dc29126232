"""Follow a stream of the in-process bus in order, across interruptions."""

from collections.abc import Callable
from functools import partial

from libs.bus.port import Follower, FromSequence, LastPerSubject, StartFrom, StoredMessage
from libs.contracts.subjects import Stream, matches
from libs.runtime.clock import Clock
from libs.testing.bus.broker import Broker
from libs.testing.bus.streams import LocalStream
from libs.testing.bus.transport import BusTrace, BusTransport

SILENCE = 6.0
"""Seconds after which a consumer notices that its stream was lost."""


class LocalConsumer:
    """Follows one stream. The follower is called only when a message has arrived at the client."""

    def __init__(
        self,
        *,
        transport: BusTransport,
        broker: Broker,
        clock: Clock,
        trace: BusTrace,
        stream: Stream,
        pattern: str,
        follower: Follower,
        start: StartFrom,
        recreate_stream: Callable[[], None],
        on_close: Callable[["LocalConsumer"], None],
    ) -> None:
        self.stream = stream.name
        self._transport = transport
        self._broker = broker
        self._clock = clock
        self._trace = trace
        self._pattern = pattern
        self._follower = follower
        self._start: StartFrom = start
        self._recreate_stream = recreate_stream
        self._on_close = on_close
        self._stream_id = 0
        self._next = 0
        self._detached = True
        self._closing = False
        self._closed = False

    def begin(self) -> None:
        """Start or resume reading, once the request has reached the server."""
        self._transport.to_server(self._begin_at_server)

    def interrupted(self) -> None:
        """Detach from the server: the link broke."""
        self._broker.remove_consumer(self)
        self._detached = True
        self._follower.lost()

    async def close(self) -> None:
        self._closing = True
        self._on_close(self)
        await self._transport.flush()
        self._closed = True

    # At the server.

    def _begin_at_server(self) -> None:
        if self._closing:
            return
        self._detached = False
        self._recreate_stream()
        self._broker.add_consumer(self)

    def stream_created(self, stream: LocalStream) -> None:
        """Send the messages that the stream holds."""
        if self._detached:
            return
        now = self._clock.now()
        if isinstance(self._start, LastPerSubject):
            messages = stream.last_of_each(self._pattern, now=now)
        else:
            messages = stream.since(self._first_sequence(stream), self._pattern, now=now)
        if isinstance(self._start, LastPerSubject) or stream.id != self._stream_id:
            self._transport.to_client(partial(self._began, stream.id))
        for message in messages:
            self._transport.to_client(partial(self._received, message))
        self._transport.to_client(self._caught_up)

    def _first_sequence(self, stream: LocalStream) -> int:
        if self._stream_id and stream.id != self._stream_id:
            self._start = FromSequence(1)
            return 1
        if self._next:
            return self._next
        return self._start.sequence if isinstance(self._start, FromSequence) else 1

    def message_added(self, message: StoredMessage) -> None:
        if not self._detached and matches(self._pattern, message.subject):
            self._transport.to_client(partial(self._received, message))

    def stream_lost(self) -> None:
        """Let the client notice the lost stream after a time of silence."""
        self._detached = True
        self._transport.to_client_after(SILENCE, self._on_stream_lost)

    # At the client.

    def _on_stream_lost(self) -> None:
        if self._closing:
            return
        self._broker.remove_consumer(self)
        self._follower.lost()
        self.begin()

    def _began(self, id: int) -> None:
        recreated = self._stream_id not in (0, id)
        self._stream_id = id
        self._next = 0
        if not self._closed:
            self._follower.began(recreated)

    def _received(self, message: StoredMessage) -> None:
        if self._closed:
            return
        self._next = message.sequence + 1
        self._trace.record(
            "read",
            self._transport.identity,
            message.subject,
            message.data,
            sequence=message.sequence,
        )
        self._follower.received(message)

    def _caught_up(self) -> None:
        if not self._closed:
            self._follower.caught_up()
