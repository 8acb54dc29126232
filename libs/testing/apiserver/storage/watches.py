"""Watches: each hears of the changes that it selects, in order, until somebody ends it.

An event is written down once for all who hear it. A listener that does not keep up is ended, as the
real server does. Knows nothing of requests; `reads.watching` makes streams of them.
"""

import asyncio
from collections import deque
from typing import cast

from libs.testing.apiserver.kinds import Kind
from libs.testing.apiserver.objects.encoding import line
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import Change

BUFFER = 4_096
"""Events that may wait for a listener before it is ended."""

_AT_ONCE = 32
"""Events that go out together where so many wait."""


class Severed(Exception):
    """The connection is cut where it is."""


class Event:
    """One change, as those hear of it who know the object already or not."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._lines: dict[str, bytes] = {}
        self._gone = b""

    def heard_as(self, selection: Selection) -> str:
        """ADDED, MODIFIED or DELETED; empty where it is no news."""
        before, after = self._change.before, self._change.after
        was = before is not None and selection.matches(before)
        is_now = after is not None and selection.matches(after)
        if is_now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    def raw(self, heard: str) -> bytes:
        """The object in it."""
        if heard != "DELETED":
            return self._change.after.raw if self._change.after is not None else b""
        if not self._gone:
            self._gone = self._change.gone()
        return self._gone

    def line(self, heard: str) -> bytes:
        """The whole event."""
        whole = self._lines.get(heard)
        if whole is None:
            whole = self._lines[heard] = line(heard, self.raw(heard))
        return whole


class Watch:
    """What one listener has not heard yet."""

    def __init__(self, kind: Kind, selection: Selection, *, user: str, after: int) -> None:
        self.kind = kind
        self.user = user
        self._selection = selection
        self._after = after
        self._waiting: deque[tuple[str, Event] | int] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._severed = False
        self.left: int | None = None
        """After so many more events it ends by itself; None: it does not."""
        self.ends_clean = True

    def offer(self, change: Change, event: Event) -> None:
        """Something was written."""
        if self._over or change.revision <= self._after:
            return
        heard = event.heard_as(self._selection)
        if not heard:
            return
        if len(self._waiting) >= BUFFER:
            self.end()
            return
        self._waiting.append((heard, event))
        self._news.set()

    def mark(self, revision: int) -> None:
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

    async def next(self) -> list[tuple[str, Event]] | int | None:
        """Events, or a bookmark's revision, or None at the end; `Severed` when it is cut."""
        while True:
            if self._severed:
                raise Severed
            if self.left == 0:
                self._waiting.clear()
                self.left = None
                self.end(clean=self.ends_clean)
                continue
            if self._waiting:
                first = self._waiting.popleft()
                return first if isinstance(first, int) else self._some(first)
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()

    def hear(self, events: int) -> None:
        """So many were heard."""
        if self.left is not None:
            self.left -= events

    def _some(self, first: tuple[str, Event]) -> list[tuple[str, Event]]:
        """As many as go out together, up to the next bookmark."""
        most = _AT_ONCE if self.left is None else min(_AT_ONCE, self.left)
        some = [first]
        while self._waiting and len(some) < most:
            if isinstance(self._waiting[0], int):
                break
            some.append(cast("tuple[str, Event]", self._waiting.popleft()))
        self.hear(len(some))
        return some


class Watches:
    """All that are open."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], dict[Watch, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(self, watch: Watch) -> None:
        """It hears of what is written from now on."""
        self._of(watch.kind)[watch] = None

    def discard(self, watch: Watch) -> None:
        """It hears no more."""
        self._of(watch.kind).pop(watch, None)

    def tell(self, kind: Kind, change: Change) -> None:
        """Something was written."""
        watches = self._of(kind)
        if watches:
            event = Event(change)
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

    def _of(self, kind: Kind) -> dict[Watch, None]:
        return self._open.setdefault((kind.group, kind.plural), {})
