"""Reads: one object, a list or a watch, as JSON or as a Table."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from libs.runtime.clock import Clock
from libs.testing.apiserver.faults import DropWatch
from libs.testing.apiserver.kinds.status_errors import not_found, resource_version_too_large
from libs.testing.apiserver.objects.encoding import decoded, encoded, line
from libs.testing.apiserver.printers import tables
from libs.testing.apiserver.reads.lists import encode_list, list_page
from libs.testing.apiserver.reads.watch_stream import Present, WatchStream
from libs.testing.apiserver.requests.negotiation import wants_table
from libs.testing.apiserver.requests.options import ListOptions, minimum_revision
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.requests.routes import Route
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.storage.watches import ServerWatch, ServerWatches, WatchEvent

_MAX_WAIT = 3.0
"""Seconds that a read waits for a revision that is still to come."""

_POLL_INTERVAL = 0.05
_MIN_WATCH_SECONDS = 1_800.0
"""How long a watch without a timeout lasts at least."""


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    query: Mapping[str, str]
    accept: str
    user: str


class ObjectReader:
    def __init__(
        self, store: Store, watches: ServerWatches, *, clock: Clock, random: random.Random
    ) -> None:
        self._store = store
        self._watches = watches
        self._clock = clock
        self._random = random

    async def get(self, request: ReadRequest) -> Reply:
        wants_table(request.accept)
        kind = request.route.kind
        await self._wait_for(minimum_revision(request.query))
        stored = self._store.of_kind(kind).get(request.route.namespace, request.route.name)
        if stored is None:
            raise not_found(kind, request.route.name)
        return Reply(200, self.presented(request, stored.raw))

    def presented(self, request: ReadRequest, raw: bytes) -> bytes:
        """Return one object in the form that the request accepts."""
        if not wants_table(request.accept):
            return raw
        return encoded(self._table(request, [decoded(raw)]))

    async def list(
        self, request: ReadRequest, options: ListOptions, *, stale_changes: int | None
    ) -> Reply:
        """List objects; `stale_changes` is the age that a fault gives to a list of any age."""
        table = wants_table(request.accept)
        await self._wait_for(options.revision)
        kind, store = request.route.kind, self._store.of_kind(request.route.kind)
        now = self._store.revision
        past = None if stale_changes is None else store.revision_before(stale_changes, now=now)
        page = list_page(store, self._selection(request), options, now=now, stale=past)
        if not table:
            return Reply(200, encode_list(kind, page))
        items = [decoded(each.raw) for each in page.items]
        return Reply(200, encoded(self._table(request, items, metadata=page.metadata)))

    async def watch(
        self, request: ReadRequest, options: ListOptions, *, drop: DropWatch | None
    ) -> Reply:
        """Watch objects; `drop` is the fault that ends the watch."""
        present = self._table_presenter(request) if wants_table(request.accept) else None
        kind, store = request.route.kind, self._store.of_kind(request.route.kind)
        selection, now = self._selection(request), self._store.revision
        starts_with_state = options.revision == 0
        after = now if starts_with_state else options.revision
        if after < store.oldest:
            # A real server refuses a watch in an event, after its 200.
            message = f"too old resource version: {after} ({store.oldest})"
            return Reply(200, line("ERROR", encoded(StatusError(410, "Expired", message).status())))
        watch = ServerWatch(kind, selection, user=request.user, after=after)
        if drop is not None:
            watch.remaining_events, watch.ends_clean = drop.after, drop.clean
        for change in store.since(after):
            watch.offer(change, WatchEvent(change))
        self._watches.add(watch)
        stream = WatchStream(
            watch,
            self._watches,
            clock=self._clock,
            timeout=options.timeout or _MIN_WATCH_SECONDS * (1.0 + self._random.random()),
            revision=lambda: self._store.revision,
            present=present,
        )
        lines = stream.lines(
            self.selected(request) if starts_with_state else (),
            end_of_initial=now if starts_with_state and options.bookmarks else None,
            bookmarks=options.bookmarks,
        )
        return Reply(200, stream=lines, on_close=stream.close)

    def selected(self, request: ReadRequest) -> Sequence[StoredObject]:
        """Return the objects that the request selects now."""
        selection = self._selection(request)
        store = self._store.of_kind(request.route.kind)
        return [each for each in store.select(request.route.namespace) if selection.matches(each)]

    def _selection(self, request: ReadRequest) -> Selection:
        route = request.route
        return Selection(
            route.kind, namespace=route.namespace, name=route.name, query=request.query
        )

    async def _wait_for(self, revision: int) -> None:
        """Wait a little for a revision that the client already saw elsewhere."""
        deadline = self._clock.monotonic() + _MAX_WAIT
        while self._store.revision < revision:
            left = deadline - self._clock.monotonic()
            if left <= 0.0:
                raise resource_version_too_large(revision, self._store.revision)
            await self._clock.sleep(min(_POLL_INTERVAL, left))

    def _table(
        self,
        request: ReadRequest,
        objects: Sequence[Mapping[str, Any]],
        *,
        metadata: Mapping[str, Any] | None = None,
        headers: bool = True,
    ) -> dict[str, Any]:
        return tables.table(
            request.route.kind,
            objects,
            now=self._clock.now(),
            include=request.query.get("includeObject", ""),
            metadata=metadata,
            headers=headers,
        )

    def _table_presenter(self, request: ReadRequest) -> Present:
        """Return a function from event type and object to the event's line with a table."""
        headers = True

        def present(event_type: str, raw: bytes) -> bytes:
            nonlocal headers
            table = self._table(request, [decoded(raw)], headers=headers)
            headers = False
            return line(event_type, encoded(table))

        return present


def may_be_old(options: ListOptions) -> bool:
    """Return whether a real server might answer this list from a cache that lags behind."""
    return bool(options.resource_version) and not options.continue_token
