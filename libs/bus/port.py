"""The interface of a bus, its errors, and retries until it is available.

A published message may be lost; a message for which `store` returned is kept. No message is
buffered to be sent later.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from libs.bus.rates import Admits
from libs.contracts.identities import Identity
from libs.contracts.subjects import Stream
from libs.runtime.clock import Backoff, Clock
from libs.runtime.env import Env

T = TypeVar("T")

log = logging.getLogger("sluice.bus")


class BusError(Exception):
    """A call to the bus failed; the text names the call, its subject and the cause."""


class BusUnavailable(BusError):
    """The bus did not answer. The message may have been sent or stored."""


class SequenceConflict(BusError):
    """The subject's last message is not the expected one. Nothing was stored."""


class SubjectForbidden(BusError):
    """This identity has no permission for the subject."""


class NoResponders(BusError):
    """No process answers requests on the subject."""


class BusMisconfigured(BusError):
    """The server's or the client's configuration must be changed; retrying is useless."""


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    subject: str
    sequence: int
    time: float
    """Unix seconds by the server's clock."""
    data: bytes


class LastPerSubject(msgspec.Struct, frozen=True):
    """Follow from the last message of each subject; start over after an interruption."""


class FromSequence(msgspec.Struct, frozen=True):
    """Follow from this sequence on; resume after an interruption."""

    sequence: int = 1


StartFrom: TypeAlias = LastPerSubject | FromSequence


class Follower(Protocol):
    """Receives a stream in order. Its methods run on the event loop and must not block.

    `began`: reading starts over. With `LastPerSubject` after every interruption, and a message that
    is not repeated before `caught_up` is gone from the stream; otherwise only if the stream was
    lost and recreated. `recreated`: it was, since the last reading, so a message that is missing
    was lost and not withdrawn. `lost`: the link broke, so following messages may be late.
    """

    def began(self, recreated: bool, /) -> None: ...

    def received(self, message: StoredMessage) -> None: ...

    def caught_up(self) -> None: ...

    def lost(self) -> None: ...


class Closable(Protocol):
    """A subscription. Messages that arrived before `close` are still handled."""

    async def close(self) -> None: ...


MessageHandler: TypeAlias = Callable[[str, bytes, str], None]
"""Takes subject, data and reply subject (empty if none). Must not block."""


class BusLink:
    """Whether the bus is connected, and for how long it was disconnected in total."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: list[Callable[[bool], None]] = []
        self._up = False
        self._changed = clock.monotonic()
        self._down_before = 0.0

    @property
    def is_up(self) -> bool:
        return self._up

    @property
    def down_seconds(self) -> float:
        """Total seconds without a connection; deadlines are extended by it."""
        return self._down_before + (0.0 if self._up else self._clock.monotonic() - self._changed)

    def watch(self, watcher: Callable[[bool], None]) -> Callable[[], None]:
        """Call `watcher(up)` at each change, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def set(self, up: bool) -> None:
        """Record that the link came up or broke. Called by implementations of `Bus`."""
        if up == self._up:
            return
        now = self._clock.monotonic()
        if up:
            self._down_before += now - self._changed
        self._up = up
        self._changed = now
        for watcher in tuple(self._watchers):
            watcher(up)


class Bus(Protocol):
    """One identity's connection."""

    @property
    def identity(self) -> Identity: ...

    @property
    def link(self) -> BusLink: ...

    async def ensure(self, stream: Stream) -> None:
        """Create the stream, or change its configuration to this one."""
        ...

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to current subscribers. Raise `BusUnavailable` at once while the link is down."""
        ...

    async def store(
        self, stream: Stream, subject: str, data: bytes, *, expect: int | None = None, id: str = ""
    ) -> int:
        """Store a message and return its sequence.

        Raise `SequenceConflict` unless `expect` is the sequence of the subject's last message
        (0: none). Messages with the same `id` within two minutes are stored once. After
        `BusUnavailable` the message may be stored.
        """
        ...

    async def last(self, stream: Stream, subject: str) -> StoredMessage | None:
        """Return the last message of a subject."""
        ...

    async def purge(self, stream: Stream, pattern: str) -> None:
        """Remove every message of the subjects."""
        ...

    async def subscribe(
        self,
        pattern: str,
        handler: MessageHandler,
        *,
        group: str = "",
        admits: Admits | None = None,
    ) -> Closable:
        """Receive new messages; within a group, each message goes to one member.

        A message is dropped before anything is done with it, unless `admits` its subject.
        """
        ...

    async def follow(
        self, stream: Stream, pattern: str, follower: Follower, *, start: StartFrom
    ) -> Closable:
        """Receive a stream's stored and new messages in order, across interruptions."""
        ...

    async def request(self, subject: str, data: bytes, *, timeout: float = 5.0) -> bytes:
        """Return the first answer. Raise `NoResponders`, or `BusUnavailable` without an answer."""
        ...

    async def request_all(self, subject: str, data: bytes, *, within: float) -> list[bytes]:
        """Return every answer that arrives within this time. Raise `NoResponders`."""
        ...


class BusRetry:
    """Retries the calls of one service's start."""

    def __init__(self, *, env: Env) -> None:
        self._clock = env.clock
        self._random = env.random
        self.reason = ""
        """Why the service still waits; empty if it does not wait."""

    async def until_success(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat an idempotent call while it raises `BusUnavailable`, and return its result."""
        backoff = Backoff(self._random, cap=10.0)
        while True:
            try:
                result = await call()
            except BusUnavailable as error:
                if not self.reason:
                    log.warning("waiting for the bus before starting: %s", error)
                self.reason = str(error)
            else:
                self.reason = ""
                return result
            await self._clock.sleep(backoff.next())
