"""Watches: each hears of the changes that it selects, in order, until somebody ends it.

An event is written down once for all who hear it. A listener that does not keep up is ended, as the
real server does. Knows nothing of requests; `reads.watching` makes streams of them.
"""

import asyncio
from collections import deque
from typing import cast

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.objects.encoding import line
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import StoredChange

BUFFER = 4_096
"""Events that may wait for a listener before it is ended."""

_AT_ONCE = 32
"""Events that go out together where so many wait."""


class ConnectionCut(Exception):
    """The connection is cut where it is."""


class WatchEvent:
    """One change, as those hear of it who know the object already or not."""

    def __init__(self, change: StoredChange) -> None:
        self._change = change
        self._lines: dict[str, bytes] = {}
        self._gone = b""

    def type_for(self, selection: Selection) -> str:
        """ADDED, MODIFIED or DELETED; empty where it is no news."""
        before, after = self._change.before, self._change.after
        was = before is not None and selection.matches(before)
        is_now = after is not None and selection.matches(after)
        if is_now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    def raw(self, event_type: str) -> bytes:
        """The object in it."""
        if event_type != "DELETED":
            return self._change.after.raw if self._change.after is not None else b""
        if not self._gone:
            self._gone = self._change.deleted_object()
        return self._gone

    def line(self, event_type: str) -> bytes:
        """The whole event."""
        whole = self._lines.get(event_type)
        if whole is None:
            whole = self._lines[event_type] = line(event_type, self.raw(event_type))
        return whole


class ServerWatch:
    """What one listener has not heard yet."""

    def __init__(self, kind: ResourceKind, selection: Selection, *, user: str, after: int) -> None:
        self.kind = kind
        self.user = user
        self._selection = selection
        self._after = after
        self._waiting: deque[tuple[str, WatchEvent] | int] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._severed = False
        self.remaining_events: int | None = None
        """After so many more events it ends by itself; None: it does not."""
        self.ends_clean = True

    def offer(self, change: StoredChange, event: WatchEvent) -> None:
        """Something was written."""
        if self._over or change.revision <= self._after:
            return
        heard = event.type_for(self._selection)
        if not heard:
            return
        if len(self._waiting) >= BUFFER:
            self.end()
            return
        self._waiting.append((heard, event))
        self._news.set()

    def add_bookmark(self, revision: int) -> None:
        """All up to this revision has been offered; said only where that is news.

        A bookmark stands in the line with the events: handed out before its turn it would come
        before events that are older than it, and after its turn behind newer ones.
        """
        if self._over or revision <= self._after:
            return
        if self._waiting and isinstance(self._waiting[-1], int):
            self._waiting.pop()
        self._waiting.append(revision)
        self._news.set()

    def end(self, *, clean: bool = True) -> None:
        """What waits is still heard where the end is clean."""
        self._over = True
        self._severed = self._severed or not clean
        self._news.set()

    async def next(self) -> list[tuple[str, WatchEvent]] | int | None:
        """Events, or a bookmark's revision, or None at the end; `Severed` when it is cut."""
        while True:
            if self._severed:
                raise ConnectionCut
            if self.remaining_events == 0:
                self._waiting.clear()
                self.remaining_events = None
                self.end(clean=self.ends_clean)
                continue
            if self._waiting:
                first = self._waiting.popleft()
                return first if isinstance(first, int) else self._some(first)
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()

    def count_delivered(self, events: int) -> None:
        """So many were heard."""
        if self.remaining_events is not None:
            self.remaining_events -= events

    def _some(self, first: tuple[str, WatchEvent]) -> list[tuple[str, WatchEvent]]:
        """As many as go out together, up to the next bookmark."""
        most = _AT_ONCE if self.remaining_events is None else min(_AT_ONCE, self.remaining_events)
        some = [first]
        while self._waiting and len(some) < most:
            if isinstance(self._waiting[0], int):
                break
            some.append(cast("tuple[str, WatchEvent]", self._waiting.popleft()))
        self.count_delivered(len(some))
        return some


class ServerWatches:
    """All that are open."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], dict[ServerWatch, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(self, watch: ServerWatch) -> None:
        """It hears of what is written from now on."""
        self._of(watch.kind)[watch] = None

    def discard(self, watch: ServerWatch) -> None:
        """It hears no more."""
        self._of(watch.kind).pop(watch, None)

    def publish(self, kind: ResourceKind, change: StoredChange) -> None:
        """Something was written."""
        watches = self._of(kind)
        if watches:
            event = WatchEvent(change)
            for watch in watches:
                watch.offer(change, event)

    def end(self, *, clean: bool, kind: str = "", user: str = "") -> int:
        """End those of a kind and user, or all; how many these were."""
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
