"""The in-process server: routes messages and keeps streams, without delay or faults."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Protocol

from libs.bus.port import BusError, BusMisconfigured, BusUnavailable, StoredMessage
from libs.contracts.subjects import Stream, matches
from libs.runtime.env import Env
from libs.testing.bus.streams import LocalStream

_REMEMBERED_ROUTES = 4096
"""Number of subjects with cached subscribers; every request adds the subject of its inbox."""


class Subscriber(Protocol):
    @property
    def pattern(self) -> str: ...

    @property
    def group(self) -> str: ...

    def deliver(self, subject: str, data: bytes, reply: str) -> None: ...


class Consumer(Protocol):
    @property
    def stream(self) -> str: ...

    def stream_created(self, stream: LocalStream) -> None: ...

    def message_added(self, message: StoredMessage) -> None: ...

    def stream_lost(self) -> None: ...


class Broker:
    """Keeps subscribers and consumers in order of creation, so that a seed repeats a run."""

    def __init__(self, *, env: Env) -> None:
        self._clock = env.clock
        self._random = env.random
        self._streams: dict[str, LocalStream] = {}
        self._created_streams = 0
        self._subscribers: list[Subscriber] = []
        self._consumers: list[Consumer] = []
        self._routes: dict[str, list[Subscriber]] = {}

    # Core messages.

    def add_subscriber(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)
        self._routes.clear()

    def remove_subscriber(self, subscriber: Subscriber) -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            self._routes.clear()

    def publish(self, subject: str, data: bytes, reply: str) -> bool:
        """Deliver and store a message; return False if there is no subscriber and no stream."""
        delivered = self._deliver(subject, data, reply)
        for stream in self._streams.values():
            if stream.covers(subject):
                delivered = True
                with suppress(BusError):
                    self._add(stream, subject, data, expect=None, id="")
        return delivered

    def _deliver(self, subject: str, data: bytes, reply: str) -> bool:
        subscribers = self._routes.get(subject)
        if subscribers is None:
            subscribers = [each for each in self._subscribers if matches(each.pattern, subject)]
            if len(self._routes) >= _REMEMBERED_ROUTES:
                self._routes.clear()
            self._routes[subject] = subscribers
        groups: dict[tuple[str, str], list[Subscriber]] = {}
        for subscriber in subscribers:
            if subscriber.group:
                groups.setdefault((subscriber.pattern, subscriber.group), []).append(subscriber)
            else:
                subscriber.deliver(subject, data, reply)
        for members in groups.values():
            self._random.choice(members).deliver(subject, data, reply)
        return bool(subscribers)

    # Streams.

    def ensure(self, wanted: Stream) -> None:
        """Create the stream or change its configuration."""
        for stream in self._streams.values():
            name = stream.config.name
            if name != wanted.name and _overlap(stream.config, wanted):
                raise BusMisconfigured(
                    f"stream {wanted.name} cannot be created: some of its subjects belong to stream"
                    f" {name}; a subject is stored once"
                )
        stream = self._streams.get(wanted.name)
        if stream is None:
            self.create(wanted)
        elif stream.config != wanted:
            stream.change(wanted, now=self._clock.now())

    def agrees(self, wanted: Stream) -> bool:
        """Return whether the stream exists with this configuration."""
        stream = self._streams.get(wanted.name)
        return stream is not None and stream.config == wanted

    def create(self, config: Stream) -> None:
        """Create an empty stream that starts at sequence 1."""
        self._created_streams += 1
        stream = self._streams[config.name] = LocalStream(config, id=self._created_streams)
        for consumer in self._consumers_of(config.name):
            consumer.stream_created(stream)

    def lose(self, name: str) -> None:
        """Delete the stream."""
        self._stream(name)
        del self._streams[name]
        for consumer in self._consumers_of(name):
            consumer.stream_lost()

    def has(self, name: str) -> bool:
        return name in self._streams

    def last(self, name: str, subject: str) -> StoredMessage | None:
        return self._stream(name).last(subject, now=self._clock.now())

    def purge(self, name: str, pattern: str) -> None:
        self._stream(name).purge(pattern)

    def store(self, name: str, subject: str, data: bytes, *, expect: int | None, id: str) -> int:
        """Store and deliver a message; return its sequence."""
        self._deliver(subject, data, "")
        stream = self._stream(name)
        if not stream.covers(subject):
            raise BusMisconfigured(
                f"{subject}: not stored: {name} takes {', '.join(stream.config.subjects)};"
                f" store it where it belongs"
            )
        return self._add(stream, subject, data, expect=expect, id=id)

    def _stream(self, name: str) -> LocalStream:
        stream = self._streams.get(name)
        if stream is None:
            raise BusUnavailable(f"stream {name} does not exist; its owner creates it with ensure")
        return stream

    def _add(
        self, stream: LocalStream, subject: str, data: bytes, *, expect: int | None, id: str
    ) -> int:
        message, new = stream.add(subject, data, now=self._clock.now(), expect=expect, id=id)
        if not new:
            return message.sequence
        if stream.config.notify is not None:
            notification = _republished(subject, *stream.config.notify)
            if notification:
                self._deliver(notification, data, "")
        for consumer in self._consumers_of(stream.config.name):
            consumer.message_added(message)
        return message.sequence

    def add_consumer(self, consumer: Consumer) -> None:
        """Let the consumer read its stream as soon as the stream exists."""
        self._consumers.append(consumer)
        stream = self._streams.get(consumer.stream)
        if stream is not None:
            consumer.stream_created(stream)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def _consumers_of(self, name: str) -> Iterator[Consumer]:
        return (consumer for consumer in tuple(self._consumers) if consumer.stream == name)


def _overlap(first: Stream, second: Stream) -> bool:
    return any(_intersect(a, b) for a in first.subjects for b in second.subjects)


def _intersect(first: str, second: str) -> bool:
    """Return whether a subject can match both patterns."""
    for a, b in zip_longest(first.split("."), second.split(".")):
        if a is None or b is None:
            return False
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return True


def _republished(subject: str, source: str, destination: str) -> str:
    """Return the subject to which the server republishes a stored message, or ""."""
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
