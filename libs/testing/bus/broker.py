"""What the in-process server does with what has reached it: who hears it, and what is kept.

It takes no time and nothing goes wrong in it: ways, waiting and faults are the connections'.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Protocol

from libs.bus.port import BusError, BusMisconfigured, BusUnavailable, StoredMessage
from libs.contracts.streams import Stream
from libs.contracts.subjects import matches
from libs.runtime.env import Env
from libs.testing.bus.streams import LocalStream

_REMEMBERED_ROUTES = 4096
"""Subjects for which the listeners are known; an inbox has a new subject for every question."""


class Subscriber(Protocol):
    """A subscription, as the server sees it."""

    @property
    def pattern(self) -> str: ...

    @property
    def group(self) -> str: ...

    def deliver(self, subject: str, data: bytes, reply: str) -> None: ...


class Consumer(Protocol):
    """A reading of a stream, as the server sees it."""

    @property
    def stream(self) -> str: ...

    def made(self, kept: LocalStream) -> None: ...

    def grown(self, message: StoredMessage) -> None: ...

    def gone(self) -> None: ...


class Broker:
    """Listeners, readers and streams, all in order of coming: so a seed repeats a run."""

    def __init__(self, *, env: Env) -> None:
        self._clock = env.clock
        self._random = env.random
        self._streams: dict[str, LocalStream] = {}
        self._lives = 0
        self._listeners: list[Subscriber] = []
        self._readers: list[Consumer] = []
        self._heard_by: dict[str, list[Subscriber]] = {}

    # Core messages.

    def add_subscriber(self, listener: Subscriber) -> None:
        """Let it hear from now on."""
        self._listeners.append(listener)
        self._heard_by.clear()

    def remove_subscriber(self, listener: Subscriber) -> None:
        """Let it hear no more; no harm if it did not."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            self._heard_by.clear()

    def publish(self, subject: str, data: bytes, reply: str) -> bool:
        """Deliver to all, and of each group to one; a stream keeps its own. False: nobody there."""
        delivered = self._deliver(subject, data, reply)
        for kept in self._streams.values():
            if kept.covers(subject):
                delivered = True
                with suppress(BusError):
                    self._keep(kept, subject, data, expect=None, id="")
        return delivered

    def _deliver(self, subject: str, data: bytes, reply: str) -> bool:
        everybody = self._heard_by.get(subject)
        if everybody is None:
            everybody = [each for each in self._listeners if matches(each.pattern, subject)]
            if len(self._heard_by) >= _REMEMBERED_ROUTES:
                self._heard_by.clear()
            self._heard_by[subject] = everybody
        groups: dict[tuple[str, str], list[Subscriber]] = {}
        for listener in everybody:
            if listener.group:
                groups.setdefault((listener.pattern, listener.group), []).append(listener)
            else:
                listener.deliver(subject, data, reply)
        for members in groups.values():
            self._random.choice(members).deliver(subject, data, reply)
        return bool(everybody)

    # Streams.

    def ensure(self, wanted: Stream) -> None:
        """Make the stream, or change it."""
        for kept in self._streams.values():
            name = kept.config.name
            if name != wanted.name and _overlap(kept.config, wanted):
                raise BusMisconfigured(
                    f"stream {wanted.name} cannot be made: some of its subjects are those of"
                    f" {name}; a subject is stored once"
                )
        kept = self._streams.get(wanted.name)
        if kept is None:
            self.make(wanted)
        elif kept.config != wanted:
            kept.change(wanted, now=self._clock.now())

    def agrees(self, wanted: Stream) -> bool:
        """Whether the stream is there as it is wanted."""
        kept = self._streams.get(wanted.name)
        return kept is not None and kept.config == wanted

    def make(self, stream: Stream) -> None:
        """An empty stream, whose first sequence is 1."""
        self._lives += 1
        kept = self._streams[stream.name] = LocalStream(stream, life=self._lives)
        for reader in self._readers_of(stream.name):
            reader.made(kept)

    def lose(self, name: str) -> None:
        """Have no such stream any more."""
        self._kept(name)
        del self._streams[name]
        for reader in self._readers_of(name):
            reader.gone()

    def has(self, name: str) -> bool:
        """Whether there is such a stream."""
        return name in self._streams

    def last(self, name: str, subject: str) -> StoredMessage | None:
        """The last message of one subject."""
        return self._kept(name).last(subject, now=self._clock.now())

    def purge(self, name: str, pattern: str) -> None:
        """Remove every message of these subjects."""
        self._kept(name).purge(pattern)

    def store(self, name: str, subject: str, data: bytes, *, expect: int | None, id: str) -> int:
        """Keep it, poke whom the stream says, and return the sequence."""
        self._deliver(subject, data, "")
        kept = self._kept(name)
        if not kept.covers(subject):
            raise BusMisconfigured(
                f"{subject}: not stored: {name} takes {', '.join(kept.config.subjects)};"
                f" store it where it belongs"
            )
        return self._keep(kept, subject, data, expect=expect, id=id)

    def _kept(self, name: str) -> LocalStream:
        kept = self._streams.get(name)
        if kept is None:
            raise BusUnavailable(f"stream {name} is not there; who owns it makes it, with ensure")
        return kept

    def _keep(
        self, kept: LocalStream, subject: str, data: bytes, *, expect: int | None, id: str
    ) -> int:
        message, new = kept.add(subject, data, now=self._clock.now(), expect=expect, id=id)
        if not new:
            return message.sequence
        if kept.config.notify is not None:
            poke = _copied(subject, *kept.config.notify)
            if poke:
                self._deliver(poke, data, "")
        for reader in self._readers_of(kept.config.name):
            reader.grown(message)
        return message.sequence

    def add_consumer(self, reader: Consumer) -> None:
        """Let it read its stream from now on, as soon as there is one."""
        self._readers.append(reader)
        kept = self._streams.get(reader.stream)
        if kept is not None:
            reader.made(kept)

    def remove_consumer(self, reader: Consumer) -> None:
        """Let it read no more; no harm if it did not."""
        if reader in self._readers:
            self._readers.remove(reader)

    def _readers_of(self, name: str) -> Iterator[Consumer]:
        return (reader for reader in tuple(self._readers) if reader.stream == name)


def _overlap(one: Stream, other: Stream) -> bool:
    return any(_meet(mine, its) for mine in one.subjects for its in other.subjects)


def _meet(pattern: str, other: str) -> bool:
    """Whether some subject is in both patterns."""
    for mine, its in zip_longest(pattern.split("."), other.split(".")):
        if mine is None or its is None:
            return False
        if ">" in (mine, its):
            return True
        if mine != its and "*" not in (mine, its):
            return False
    return True


def _copied(subject: str, source: str, destination: str) -> str:
    """Where the server copies what is stored under `subject`, or nowhere."""
    if not matches(source, subject):
        return ""
    tokens, pattern = subject.split("."), source.split(".")
    stars = [token for token, want in zip(tokens, pattern, strict=False) if want == "*"]
    copied: list[str] = []
    for token in destination.split("."):
        if token == ">":
            copied += tokens[len(pattern) - 1 :]
        elif token.startswith("$"):
            copied.append(stars[int(token[1:]) - 1])
        else:
            copied.append(token)
    return ".".join(copied)
