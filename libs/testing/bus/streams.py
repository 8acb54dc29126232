"""A stream of the in-process bus, with the retention rules of nats-server."""

from collections import deque
from collections.abc import Sequence

from libs.bus.port import (
    BusError,
    BusMisconfigured,
    BusUnavailable,
    SequenceConflict,
    StoredMessage,
)
from libs.contracts.subjects import Stream, matches

REMEMBERED = 120.0
"""Seconds for which messages with the same id are stored once."""

_OVERHEAD = 30
"""Bytes that the server's file needs per message besides subject and data."""


class LocalStream:
    """A stream; a recreated one has another `id`."""

    def __init__(self, config: Stream, *, id: int) -> None:
        self.config = config
        self.id = id
        self._last_sequence = 0
        self._messages: dict[int, StoredMessage] = {}
        self._of_subject: dict[str, deque[int]] = {}
        self._bytes = 0
        self._ids: dict[str, StoredMessage] = {}

    def covers(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.config.subjects)

    def add(
        self, subject: str, data: bytes, *, now: float, expect: int | None, id: str
    ) -> tuple[StoredMessage, bool]:
        """Store a message unless its id was stored recently; return it and whether it is new."""
        limit = self.config.max_message
        if 0 <= limit < len(data):
            raise BusError(
                f"{subject}: not stored: {len(data)} bytes, and {self.config.name} accepts at most"
                f" {limit}"
            )
        self.expire(now)
        sequences = self._of_subject.get(subject)
        last = sequences[-1] if sequences else 0
        if expect is not None and expect != last:
            raise SequenceConflict(
                f"{subject}: not stored: its last message in {self.config.name} is {last}, and"
                f" the writer expected {expect}; read it again and retry"
            )
        known = self._known(id, now) if id else None
        if known is not None:
            return known, False
        message = StoredMessage(subject, self._last_sequence + 1, now, data)
        self._require_room(message, replaces=sequences)
        self._last_sequence += 1
        self._messages[message.sequence] = message
        self._of_subject.setdefault(subject, deque()).append(message.sequence)
        self._bytes += _size(message)
        if id:
            self._ids[id] = message
        self._make_room(subject)
        return message, True

    def _require_room(self, message: StoredMessage, *, replaces: Sequence[int] | None) -> None:
        config, size = self.config, _size(message)
        if not config.refuses_when_full or not 0 <= config.max_bytes < self._bytes + size:
            return
        if replaces and len(replaces) >= config.per_subject:
            size -= _size(self._messages[replaces[0]])
        if size > 0:
            raise BusUnavailable(f"{message.subject}: not stored: {config.name} is full")

    def _known(self, id: str, now: float) -> StoredMessage | None:
        while self._ids and next(iter(self._ids.values())).time <= now - REMEMBERED:
            del self._ids[next(iter(self._ids))]
        return self._ids.get(id)

    def change(self, wanted: Stream, *, now: float) -> None:
        """Change the configuration, as far as the server permits."""
        sequences = self.config
        if sequences.deny_purge and not wanted.deny_purge:
            raise BusMisconfigured(
                f"stream {wanted.name}: deny_purge cannot be taken back; keep it, or delete the"
                f" stream"
            )
        self.config = wanted
        self.expire(now)
        for subject in tuple(self._of_subject):
            self._make_room(subject)

    def last(self, subject: str, *, now: float) -> StoredMessage | None:
        self.expire(now)
        sequences = self._of_subject.get(subject)
        return self._messages[sequences[-1]] if sequences else None

    def last_of_each(self, pattern: str, *, now: float) -> list[StoredMessage]:
        """Return the last message of each subject of the pattern, in the stream's order."""
        self.expire(now)
        last = [
            sequences[-1]
            for subject, sequences in self._of_subject.items()
            if matches(pattern, subject)
        ]
        return [self._messages[sequence] for sequence in sorted(last)]

    def since(self, sequence: int, pattern: str, *, now: float) -> list[StoredMessage]:
        self.expire(now)
        return [
            message
            for message in self._messages.values()
            if message.sequence >= sequence and matches(pattern, message.subject)
        ]

    def purge(self, pattern: str) -> None:
        if self.config.deny_purge:
            raise BusError(
                f"{pattern}: not purged: {self.config.name} cannot be purged; its messages expire"
            )
        for subject in [s for s in self._of_subject if matches(pattern, s)]:
            for sequence in tuple(self._of_subject[subject]):
                self._remove(sequence)

    def expire(self, now: float) -> None:
        if self.config.max_age <= 0:
            return
        while self._messages and self._oldest().time <= now - self.config.max_age:
            self._remove(self._oldest().sequence)

    def _make_room(self, subject: str) -> None:
        while len(self._of_subject.get(subject, ())) > self.config.per_subject:
            self._remove(self._of_subject[subject][0])
        while 0 <= self.config.max_bytes < self._bytes and self._messages:
            self._remove(self._oldest().sequence)

    def _oldest(self) -> StoredMessage:
        return next(iter(self._messages.values()))

    def _remove(self, sequence: int) -> None:
        message = self._messages.pop(sequence)
        self._bytes -= _size(message)
        of_subject = self._of_subject[message.subject]
        of_subject.remove(sequence)
        if not of_subject:
            del self._of_subject[message.subject]


def _size(message: StoredMessage) -> int:
    return len(message.subject) + len(message.data) + _OVERHEAD
