"""One reading of a stream over the in-process bus: in order, and over every interruption."""

from collections.abc import Callable
from functools import partial

from libs.bus.port import Follower, FromSequence, FromTime, LastPerSubject, StartFrom, StoredMessage
from libs.contracts.streams import Stream
from libs.contracts.subjects import matches
from libs.runtime.clock import Clock
from libs.testing.bus.broker import Broker
from libs.testing.bus.streams import LocalStream
from libs.testing.bus.trace import BusTrace
from libs.testing.bus.transport import BusTransport

SILENCE = 6.0
"""Seconds without a sign of life after which a reader looks whether its stream is still there."""


class LocalConsumer:
    """What its follower knows changes only as it arrives: the rest is the server's view."""

    def __init__(
        self,
        *,
        line: BusTransport,
        broker: Broker,
        clock: Clock,
        tap: BusTrace,
        stream: Stream,
        pattern: str,
        follower: Follower,
        start: StartFrom,
        make_again: Callable[[], None],
        done: Callable[["LocalConsumer"], None],
    ) -> None:
        self.stream = stream.name
        self._line = line
        self._broker = broker
        self._clock = clock
        self._tap = tap
        self._pattern = pattern
        self._follower = follower
        self._start: StartFrom = start
        self._make_again = make_again
        self._done = done
        self._life = 0
        self._next = 0
        self._blind = True
        self._closing = False
        self._closed = False

    def begin(self) -> None:
        """Read on, as soon as the server hears of it."""
        self._line.to_server(self._begin_there)

    def interrupted(self) -> None:
        """The link broke: nothing of this reading is known to the server any more."""
        self._broker.remove_consumer(self)
        self._blind = True
        self._follower.lost()

    async def close(self) -> None:
        """End the reading; what had arrived is still handed over."""
        self._closing = True
        self._done(self)
        await self._line.flush()
        self._closed = True

    # At the server.

    def _begin_there(self) -> None:
        if self._closing:
            return
        self._blind = False
        self._make_again()
        self._broker.add_consumer(self)

    def made(self, kept: LocalStream) -> None:
        """The stream is there: hand over what it holds."""
        if self._blind:
            return
        now = self._clock.now()
        if isinstance(self._start, LastPerSubject):
            held = kept.last_of_each(self._pattern, now=now)
        else:
            held = kept.since(self._first_wanted(kept), self._pattern, now=now)
            if isinstance(self._start, FromTime) and not self._next:
                since = self._start.time
                held = [message for message in held if message.time >= since]
        if isinstance(self._start, LastPerSubject) or kept.life != self._life:
            self._line.to_client(partial(self._began, kept.life))
        for message in held:
            self._line.to_client(partial(self._received, message))
        self._line.to_client(self._caught_up)

    def _first_wanted(self, kept: LocalStream) -> int:
        if self._life and kept.life != self._life:
            self._start = FromSequence(1)
            return 1
        if self._next:
            return self._next
        return self._start.sequence if isinstance(self._start, FromSequence) else 1

    def grown(self, message: StoredMessage) -> None:
        """The stream has one more."""
        if not self._blind and matches(self._pattern, message.subject):
            self._line.to_client(partial(self._received, message))

    def gone(self) -> None:
        """The stream is no more. Nobody says so: it is noticed by the silence."""
        self._blind = True
        self._line.to_client_after(SILENCE, self._noticed)

    # As it arrives.

    def _noticed(self) -> None:
        if self._closing:
            return
        self._broker.remove_consumer(self)
        self._follower.lost()
        self.begin()

    def _began(self, life: int) -> None:
        self._life = life
        self._next = 0
        if not self._closed:
            self._follower.began()

    def _received(self, message: StoredMessage) -> None:
        if self._closed:
            return
        self._next = message.sequence + 1
        self._tap.record(
            "read", self._line.identity, message.subject, message.data, sequence=message.sequence
        )
        self._follower.received(message)

    def _caught_up(self) -> None:
        if not self._closed:
            self._follower.caught_up()
