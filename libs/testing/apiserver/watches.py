"""Watches: queues of the selected changes, in order.

An event is encoded once for all watches. A watch whose client does not keep up is ended.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import cast

from libs.runtime.clock import Clock
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.objects.json import encoded
from libs.testing.apiserver.objects.json import watch_line as line
from libs.testing.apiserver.objects.shapes import encoded as typed
from libs.testing.apiserver.store import Selection, StoredChange, StoredObject

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


BOOKMARK_EVERY = 60.0
"""Seconds."""

_BEFORE_END = 2.0
"""Seconds between the last bookmark and the end."""

Present = Callable[[str, bytes], bytes]
"""Returns the line of an event from its type and object, where it is not as stored."""


class WatchStream:
    def __init__(
        self,
        watch: ServerWatch,
        watches: ServerWatches,
        *,
        clock: Clock,
        timeout: float,
        revision: Callable[[], int],
        present: Present | None,
    ) -> None:
        self._watch = watch
        self._watches = watches
        self._clock = clock
        self._timeout = timeout
        self._revision = revision
        self._present = present
        self._ticker: asyncio.Task[None] | None = None

    async def lines(
        self, initial: Iterable[StoredObject], *, end_of_initial: int | None, bookmarks: bool
    ) -> AsyncGenerator[bytes]:
        """Stream the body; `end_of_initial` is the revision of the bookmark after the state."""
        self._ticker = asyncio.create_task(self._tick(bookmarks=bookmarks), name="watch")
        for stored in initial:
            if self._watch.remaining_events == 0:
                break
            self._watch.count_delivered(1)
            yield self._line("ADDED", stored.raw)
        if end_of_initial is not None and self._watch.remaining_events != 0:
            yield self._bookmark(end_of_initial, ends=True)
        while (item := await self._next()) is not None:
            if isinstance(item, int):
                yield self._bookmark(item, ends=False)
            elif self._present is None:
                yield b"".join([event.line(event_type) for event_type, event in item])
            else:
                yield b"".join(
                    [self._line(event_type, event.raw(event_type)) for event_type, event in item]
                )

    async def close(self) -> None:
        self._watches.discard(self._watch)
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker

    async def _next(self) -> list[tuple[str, WatchEvent]] | int | None:
        try:
            return await self._watch.next()
        except ConnectionCut:
            self._watches.discard(self._watch)
            raise

    async def _tick(self, *, bookmarks: bool) -> None:
        """Add bookmarks at their times, and end the watch at its timeout."""
        left = self._timeout
        while bookmarks and left > _BEFORE_END:
            pause = min(BOOKMARK_EVERY, left - _BEFORE_END)
            await self._clock.sleep(pause)
            left -= pause
            self._watch.add_bookmark(self._revision())
        await self._clock.sleep(left)
        self._watch.end()

    def _line(self, event_type: str, raw: bytes) -> bytes:
        present = self._present or line
        return present(event_type, raw)

    def _bookmark(self, revision: int, *, ends: bool) -> bytes:
        kind = self._watch.kind
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if ends:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return self._line("BOOKMARK", encoded(typed(obj, kind.shape)))
