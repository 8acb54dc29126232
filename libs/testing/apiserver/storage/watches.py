"""Watches: queues of the selected changes, in order.

An event is encoded once for all watches. A watch whose client does not keep up is ended.
"""

import asyncio
from collections import deque
from typing import cast

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.objects.encoding import line
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import StoredChange

BUFFER = 4_096
"""Events that a watch may queue before it is ended."""

_BATCH = 32
"""Queued events that are sent together."""


class ConnectionCut(Exception):
    """The connection is cut."""


class WatchEvent:
    """One change, whose event type depends on the selection of each watch."""

    def __init__(self, change: StoredChange) -> None:
        self._change = change
        self._lines: dict[str, bytes] = {}
        self._deleted = b""

    def type_for(self, selection: Selection) -> str:
        """Return ADDED, MODIFIED or DELETED; empty where the selection is not concerned."""
        before, after = self._change.before, self._change.after
        was = before is not None and selection.matches(before)
        is_now = after is not None and selection.matches(after)
        if is_now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    def raw(self, event_type: str) -> bytes:
        if event_type != "DELETED":
            return self._change.after.raw if self._change.after is not None else b""
        if not self._deleted:
            self._deleted = self._change.deleted_object()
        return self._deleted

    def line(self, event_type: str) -> bytes:
        encoded = self._lines.get(event_type)
        if encoded is None:
            encoded = self._lines[event_type] = line(event_type, self.raw(event_type))
        return encoded


class ServerWatch:
    """The queue of one watch."""

    def __init__(self, kind: ResourceKind, selection: Selection, *, user: str, after: int) -> None:
        self.kind = kind
        self.user = user
        self._selection = selection
        self._after = after
        self._queue: deque[tuple[str, WatchEvent] | int] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._cut = False
        self.remaining_events: int | None = None
        """Events before the watch ends by itself; None: it does not."""
        self.ends_clean = True

    def offer(self, change: StoredChange, event: WatchEvent) -> None:
        """Queue a change that the watch selects."""
        if self._ended or change.revision <= self._after:
            return
        event_type = event.type_for(self._selection)
        if not event_type:
            return
        if len(self._queue) >= BUFFER:
            self.end()
            return
        self._queue.append((event_type, event))
        self._changed.set()

    def add_bookmark(self, revision: int) -> None:
        """Queue a bookmark, which replaces one that is still last in the queue.

        A bookmark keeps its place among the events: it must follow all that are older.
        """
        if self._ended or revision <= self._after:
            return
        if self._queue and isinstance(self._queue[-1], int):
            self._queue.pop()
        self._queue.append(revision)
        self._changed.set()

    def end(self, *, clean: bool = True) -> None:
        """End the watch; a clean end still delivers the queue."""
        self._ended = True
        self._cut = self._cut or not clean
        self._changed.set()

    async def next(self) -> list[tuple[str, WatchEvent]] | int | None:
        """Return events, a bookmark's revision, or None at the end; raise when cut."""
        while True:
            if self._cut:
                raise ConnectionCut
            if self.remaining_events == 0:
                self._queue.clear()
                self.remaining_events = None
                self.end(clean=self.ends_clean)
                continue
            if self._queue:
                first = self._queue.popleft()
                return first if isinstance(first, int) else self._batch(first)
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()

    def count_delivered(self, events: int) -> None:
        if self.remaining_events is not None:
            self.remaining_events -= events

    def _batch(self, first: tuple[str, WatchEvent]) -> list[tuple[str, WatchEvent]]:
        """Return the events that are sent together, up to the next bookmark."""
        limit = _BATCH if self.remaining_events is None else min(_BATCH, self.remaining_events)
        batch = [first]
        while self._queue and len(batch) < limit:
            if isinstance(self._queue[0], int):
                break
            batch.append(cast("tuple[str, WatchEvent]", self._queue.popleft()))
        self.count_delivered(len(batch))
        return batch


class ServerWatches:
    """The open watches."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], dict[ServerWatch, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(self, watch: ServerWatch) -> None:
        self._of(watch.kind)[watch] = None

    def discard(self, watch: ServerWatch) -> None:
        self._of(watch.kind).pop(watch, None)

    def publish(self, kind: ResourceKind, change: StoredChange) -> None:
        watches = self._of(kind)
        if watches:
            event = WatchEvent(change)
            for watch in watches:
                watch.offer(change, event)

    def end(self, *, clean: bool, kind: str = "", user: str = "") -> int:
        """End the watches of a kind and user, or all, and return their number."""
        ended = [
            watch
            for watches in self._open.values()
            for watch in watches
            if kind in ("", watch.kind.kind) and user in ("", watch.user)
        ]
        for watch in ended:
            watch.end(clean=clean)
        return len(ended)

    def _of(self, kind: ResourceKind) -> dict[ServerWatch, None]:
        return self._open.setdefault((kind.group, kind.plural), {})
