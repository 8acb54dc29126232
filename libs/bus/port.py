"""The port: what a bus must do, and how it says that it could not.

Small on purpose. What the planes promise (order of commands, one result per op, gaps counted) is
built once above it, in the other modules of this package, and holds on either implementation. A
core message may be lost; what `store` has returned is kept; nothing is ever buffered for later.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from libs.contracts.identities import Identity
from libs.contracts.streams import Stream
from libs.runtime.clock import Clock


class BusError(Exception):
    """Something about the bus went wrong; the text says what was tried, on what, and why."""


class BusUnavailable(BusError):
    """The bus did not answer. Whether it took what was sent is not known."""


class SequenceConflict(BusError):
    """The subject's last message is not the one that the writer expected. Nothing was stored."""


class SubjectForbidden(BusError):
    """This identity may not do that."""


class NoResponders(BusError):
    """Nobody answers questions on that subject now."""


class BusMisconfigured(BusError):
    """The server, or what we told it, must be changed by a person."""


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """One message in a stream."""

    subject: str
    sequence: int
    time: float
    """Unix seconds, by the server."""
    data: bytes


class LastPerSubject(msgspec.Struct, frozen=True):
    """Follow from the last message of each subject; after an interruption, from there again."""


class FromSequence(msgspec.Struct, frozen=True):
    """Follow from this sequence on; after an interruption, from where it stopped."""

    sequence: int = 1


class FromTime(msgspec.Struct, frozen=True):
    """Follow from this moment on, in unix seconds; after an interruption, from where it stopped."""

    time: float


StartFrom: TypeAlias = LastPerSubject | FromSequence | FromTime


class Follower(Protocol):
    """Who follows a stream. Called on the event loop, in the stream's order; must not block.

    `began` says that reading starts over: with `LastPerSubject` after every interruption (what is
    not repeated before `caught_up` is gone from the stream); otherwise only if the stream itself
    was lost and made anew. `lost` says that what comes next may be late: the link broke.
    """

    def began(self) -> None: ...

    def received(self, message: StoredMessage) -> None: ...

    def caught_up(self) -> None: ...

    def lost(self) -> None: ...


class Closable(Protocol):
    """Something that runs until it is closed. What had arrived before `close` is still handled."""

    async def close(self) -> None: ...


MessageHandler: TypeAlias = Callable[[str, bytes, str], None]
"""Takes subject, data and reply subject (empty if none). Must not block."""


class BusLink:
    """Whether the bus is there, since when, and for how long it was away in all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: list[Callable[[bool], None]] = []
        self._up = False
        self._changed = clock.monotonic()
        self._away = 0.0

    @property
    def is_up(self) -> bool:
        """Whether the bus is there now."""
        return self._up

    @property
    def down_seconds(self) -> float:
        """Seconds in which the bus was away, since this link was made: deadlines grow by it."""
        return self._away + (0.0 if self._up else self._clock.monotonic() - self._changed)

    def watch(self, watcher: Callable[[bool], None]) -> Callable[[], None]:
        """Call `watcher(up)` at each change, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def set(self, up: bool) -> None:
        """For the implementations: the link came up or broke."""
        if up == self._up:
            return
        now = self._clock.monotonic()
        if up:
            self._away += now - self._changed
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
        """Make the stream as `contracts.streams` says, or change it until it is."""
        ...

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now. Raises `Away` at once while the link is down."""
        ...

    async def store(
        self, stream: Stream, subject: str, data: bytes, *, expect: int | None = None, id: str = ""
    ) -> int:
        """Store, and return the sequence under which the server has it.

        `expect` is the sequence of the subject's last message (0: none), else `Conflict`. Two
        messages with one `id` within two minutes are stored once. After `Away` it may be stored.
        """
        ...

    async def last(self, stream: Stream, subject: str) -> StoredMessage | None:
        """The last message of this subject."""
        ...

    async def purge(self, stream: Stream, pattern: str) -> None:
        """Remove every message of these subjects."""
        ...

    async def subscribe(
        self, pattern: str, handler: MessageHandler, *, group: str = ""
    ) -> Closable:
        """Hear what is sent from now on; of a group, each message goes to one member."""
        ...

    async def follow(
        self, stream: Stream, pattern: str, follower: Follower, *, start: StartFrom
    ) -> Closable:
        """Read a stream in order, and go on as it grows, over every interruption."""
        ...

    async def request(self, subject: str, data: bytes, *, timeout: float = 5.0) -> bytes:
        """Ask, and return the first answer. Raises `NobodyThere` or, without an answer, `Away`."""
        ...
