"""Reads: one object, a list, a watch, in the form that is asked for."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from libs.runtime.clock import Clock
from libs.testing.apiserver.faults import DropWatch
from libs.testing.apiserver.kinds.status_errors import not_found, resource_version_too_large
from libs.testing.apiserver.objects.encoding import decoded, encoded, line
from libs.testing.apiserver.printers import tables
from libs.testing.apiserver.reads.lists import (
    ListPage,
    as_version,
    decode_items,
    encode_list,
    list_page,
)
from libs.testing.apiserver.reads.watch_stream import Present, WatchStream
from libs.testing.apiserver.requests.negotiation import (
    LIST,
    OBJECT,
    ResponseForm,
    content_type,
    negotiate,
)
from libs.testing.apiserver.requests.options import NOT_OLDER, ListOptions, minimum_revision
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.requests.routes import Route
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.storage.watches import ServerWatch, ServerWatches, WatchEvent

_WAIT = 3.0
"""Seconds that a read waits for a revision that is not there yet."""

_EVERY = 0.05
_SHORTEST = 1_800.0
"""Seconds that a watch lasts at least where it names no timeout."""


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One read."""

    route: Route
    query: Mapping[str, str]
    accept: str
    user: str


class ObjectReader:
    """Answers reads from a store."""

    def __init__(
        self, store: Store, watches: ServerWatches, *, clock: Clock, random: random.Random
    ) -> None:
        self._store = store
        self._watches = watches
        self._clock = clock
        self._random = random

    async def get(self, ask: ReadRequest) -> Reply:
        """One object."""
        shown = negotiate(ask.accept, OBJECT)
        kind, query = ask.route.kind, ask.query
        await self._until(minimum_revision(query))
        stored = self._store.of_kind(kind).get(ask.route.namespace, ask.route.name)
        if stored is None:
            raise not_found(kind, ask.route.name)
        raw = as_version(kind, stored.raw)
        return Reply(200, self.negotiated(ask, raw, shown), content_type=content_type(shown))

    def negotiated(self, ask: ReadRequest, raw: bytes, shown: ResponseForm) -> bytes:
        """One object in another form."""
        if shown is ResponseForm.TABLE:
            return encoded(self._table(ask, [decoded(raw)]))
        return encoded(tables.partial(decoded(raw))) if shown is ResponseForm.PARTIAL else raw

    async def list(self, ask: ReadRequest, options: ListOptions, *, stale: int | None) -> Reply:
        """Objects of a kind; `stale` where a fault makes it old."""
        shown = negotiate(ask.accept, LIST)
        await self._until(options.number)
        kind, shelf = ask.route.kind, self._store.of_kind(ask.route.kind)
        now = self._store.revision
        past = None if stale is None else shelf.revision_before(stale, now=now)
        listed = list_page(shelf, self._selection(ask), options, now=now, stale=past)
        if shown is ResponseForm.PLAIN:
            body = encode_list(kind, listed)
        elif shown is ResponseForm.TABLE:
            body = encoded(self._table(ask, decode_items(kind, listed), metadata=listed.metadata))
        else:
            body = encoded(_partial_list(decode_items(kind, listed), listed))
        return Reply(200, body, content_type=content_type(shown))

    async def watch(
        self, ask: ReadRequest, options: ListOptions, *, drop: DropWatch | None
    ) -> Reply:
        """What happens to objects of a kind; `drop` where a fault ends it."""
        present = self._presenter(ask, negotiate(ask.accept, OBJECT))
        if options.initial:
            try:
                await self._until(options.number)
            except StatusError as refusal:
                return Reply(200, _error(refusal))
        kind, shelf = ask.route.kind, self._store.of_kind(ask.route.kind)
        selection, now = self._selection(ask), self._store.revision
        fresh = options.initial or (options.initial is None and options.number == 0)
        after = now if fresh else options.number or now
        if after < shelf.oldest:
            return Reply(200, _too_old(after, shelf.oldest))
        watch = ServerWatch(kind, selection, user=ask.user, after=after)
        if drop is not None:
            watch.remaining_events, watch.ends_clean = drop.after, drop.clean
        for change in shelf.since(after):
            watch.offer(change, WatchEvent(change))
        self._watches.add(watch)
        initial = [each for each in shelf.select(ask.route.namespace) if selection.matches(each)]
        stream = WatchStream(
            watch,
            self._watches,
            clock=self._clock,
            timeout=options.timeout or _SHORTEST * (1.0 + self._random.random()),
            revision=lambda: self._store.revision,
            present=present,
        )
        lines = stream.lines(
            initial if fresh else (),
            end_of_initial=now if fresh and options.bookmarks else None,
            bookmarks=options.bookmarks,
        )
        return Reply(200, stream=lines, closing=stream.close)

    def selected(self, ask: ReadRequest) -> Sequence[StoredObject]:
        """The objects that a request for many is about."""
        selection = self._selection(ask)
        shelf = self._store.of_kind(ask.route.kind)
        return [each for each in shelf.select(ask.route.namespace) if selection.matches(each)]

    def _selection(self, ask: ReadRequest) -> Selection:
        return Selection(
            ask.route.kind, namespace=ask.route.namespace, name=ask.route.name, query=ask.query
        )

    async def _until(self, revision: int) -> None:
        """Wait a little for a revision that others have heard of already."""
        until = self._clock.monotonic() + _WAIT
        while self._store.revision < revision:
            left = until - self._clock.monotonic()
            if left <= 0.0:
                raise resource_version_too_large(revision, self._store.revision)
            await self._clock.sleep(min(_EVERY, left))

    def _table(
        self,
        ask: ReadRequest,
        things: Sequence[Mapping[str, Any]],
        *,
        metadata: Mapping[str, Any] | None = None,
        headers: bool = True,
    ) -> dict[str, Any]:
        return tables.table(
            ask.route.kind,
            things,
            now=self._clock.now(),
            include=ask.query.get("includeObject", ""),
            metadata=metadata,
            headers=headers,
        )

    def _presenter(self, ask: ReadRequest, shown: ResponseForm) -> Present | None:
        kind = ask.route.kind
        if shown is ResponseForm.PLAIN and not kind.custom:
            return None
        headed = False

        def present(heard: str, raw: bytes) -> bytes:
            nonlocal headed
            raw = as_version(kind, raw) if heard != "BOOKMARK" else raw
            if shown is ResponseForm.PLAIN:
                return line(heard, raw)
            if shown is ResponseForm.PARTIAL:
                return line(heard, encoded(tables.partial(decoded(raw))))
            table = self._table(ask, [decoded(raw)], headers=not headed)
            headed = True
            return line(heard, encoded(table))

        return present


def may_be_old(options: ListOptions) -> bool:
    """Whether a real server might answer this list from a memory that lags behind."""
    return options.match in ("", NOT_OLDER) and bool(options.revision) and not options.resume


def _too_old(asked: int, oldest: int) -> bytes:
    words = f"too old resource version: {asked} ({oldest})"
    return _error(StatusError(410, "Expired", words))


def _error(refusal: StatusError) -> bytes:
    """A watch that was begun is refused in an event."""
    return line("ERROR", encoded(refusal.status()))


def _partial_list(things: Sequence[Mapping[str, Any]], listed: ListPage) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": listed.metadata,
        "items": [tables.partial(thing) for thing in things],
    }
