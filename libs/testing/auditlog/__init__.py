"""The journal of a real API server: its audit log, read as `Revision` records.

The server must log writes with both bodies (level RequestResponse, stage ResponseComplete). Its log
is in the order of answers and the journal in that of revisions, so an event is held back until none
that belongs before it is likely to come. What an event did to its object is for
`libs.testing.auditlog.object_history` to say.
"""

import heapq
from collections.abc import Iterator

import msgspec

from libs.contracts.journal import Revision
from libs.testing.auditlog.audit_event import AuditEvent
from libs.testing.auditlog.object_history import ObjectHistory

HELD_BACK = 2.0
"""Seconds of the log's own time."""

_DECODER = msgspec.json.Decoder(AuditEvent)


class CorruptAuditLog(Exception):
    """A line of an audit log that is no event."""


class AuditLogConverter:
    """Takes a log as it grows, and keeps the last state of each object whose end it did not see."""

    def __init__(self, source: str) -> None:
        """`source` is how errors call the log."""
        self._source = source
        self._line = 0
        self._half = b""
        self._newest = 0
        self._held: list[tuple[int, int, AuditEvent]] = []
        self._history = ObjectHistory()

    def feed(self, text: bytes) -> list[Revision]:
        """The next part of the log, which may end within a line: what has its place by now."""
        revisions: list[Revision] = []
        *lines, self._half = (self._half + text).split(b"\n")
        for line in lines:
            self._line += 1
            event = self._event(line) if line.strip() else None
            if event is not None and event.is_write():
                self._hold(event)
                revisions += self._settled(event.logged.timestamp() - HELD_BACK)
        return revisions

    def flush(self) -> list[Revision]:
        """What was held back, because nothing more comes for now."""
        return list(self._settled(float("inf")))

    def _event(self, line: bytes) -> AuditEvent:
        try:
            return _DECODER.decode(line)
        except msgspec.DecodeError as error:
            raise CorruptAuditLog(
                f"line {self._line} of {self._source} is no event of audit.k8s.io/v1 ({error}): "
                "see that only the API server writes there; with the line removed the rest can be "
                "read, and what it told is missing from the journal"
            ) from error

    def _hold(self, event: AuditEvent) -> None:
        # One that shows no revision is of after all that was answered before it.
        revision = event.revision or self._newest
        self._newest = max(self._newest, revision)
        heapq.heappush(self._held, (revision, self._line, event))

    def _settled(self, until: float) -> Iterator[Revision]:
        while self._held and self._held[0][2].logged.timestamp() <= until:
            *_, event = heapq.heappop(self._held)
            yield from self._history.revisions(event)
