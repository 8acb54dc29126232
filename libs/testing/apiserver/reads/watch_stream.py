"""The response stream of a watch: initial state, events, bookmarks, and its end."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable

from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.encoding import encoded, line
from libs.testing.apiserver.objects.shapes import encoded as typed
from libs.testing.apiserver.storage.store import StoredObject
from libs.testing.apiserver.storage.watches import (
    ConnectionCut,
    ServerWatch,
    ServerWatches,
    WatchEvent,
)

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
        thing = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return self._line("BOOKMARK", encoded(typed(thing, kind.shape)))
