"""Converts the audit log of a real API server into `Revision` records.

The server must log writes with both bodies (level RequestResponse, stage ResponseComplete). The log
is ordered by responses and the journal by revisions, so each event is held back until an earlier
revision is unlikely to follow.
"""

import heapq
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from libs.contracts.journal import Revision
from libs.kube.auditlog.audit_event import AuditEvent
from libs.kube.auditlog.object_history import ObjectHistory

HOLD_SECONDS = 2.0
"""How long an event is held back, in the time of the log."""

_DECODER = msgspec.json.Decoder(AuditEvent)


class CorruptAuditLog(Exception):
    """A line of the log that is no audit event."""


class AuditLogConverter:
    """Converts a growing log; keeps the last state of each object that was not deleted."""

    def __init__(self, source: str) -> None:
        """`source` names the log in errors."""
        self._source = source
        self._line = 0
        self._rest = b""
        self._newest = 0
        self._last_made = 0.0
        self._events: list[tuple[int, int, AuditEvent]] = []
        self._history = ObjectHistory()

    def feed(self, text: bytes) -> list[Revision]:
        """Add a part of the log, which may end within a line, and return the settled revisions."""
        revisions: list[Revision] = []
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            self._line += 1
            event = self._decode(line) if line.strip() else None
            if event is not None and event.is_write():
                self._hold(event)
                revisions += self._settled(event.logged.timestamp() - HOLD_SECONDS)
        return revisions

    def flush(self) -> list[Revision]:
        """Return the revisions held back so far."""
        return list(self._settled(float("inf")))

    def _decode(self, line: bytes) -> AuditEvent:
        try:
            return _DECODER.decode(line)
        except msgspec.DecodeError as error:
            raise CorruptAuditLog(
                f"line {self._line} of {self._source} is no event of audit.k8s.io/v1 ({error}): "
                "make sure that only the API server writes to the log; with the line removed, the "
                "rest can be read without it"
            ) from error

    def _hold(self, event: AuditEvent) -> None:
        # An event without a revision sorts after all events logged before it.
        revision = event.revision or self._newest
        self._newest = max(self._newest, revision)
        heapq.heappush(self._events, (revision, self._line, event))

    def _settled(self, until: float) -> Iterator[Revision]:
        while self._events and self._events[0][2].logged.timestamp() <= until:
            *_, event = heapq.heappop(self._events)
            for revision in self._history.revisions(event):
                yield self._in_order(revision, event.logged.timestamp())

    def _in_order(self, revision: Revision, answered: float) -> Revision:
        """Return a write with the time between its arrival and its answer that fits the order.

        A write that admission held for seconds was made after those that came meanwhile: by its
        arrival it would be taken for a sign that a clock was put back.
        """
        if not revision.changed:
            return revision  # it changes nothing, and has the revision of an earlier write
        made = max(revision.time, min(self._last_made, answered))
        self._last_made = made
        return replace(revision, time=made) if made != revision.time else revision
