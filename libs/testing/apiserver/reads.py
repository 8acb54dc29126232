"""Reads: one object, a list or a watch, as JSON or as a Table."""

import base64
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from libs.runtime.clock import Clock
from libs.testing.apiserver.faults import DropWatch
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    not_found,
    resource_version_too_large,
)
from libs.testing.apiserver.objects.json import decoded, encoded, joined, prefix
from libs.testing.apiserver.objects.json import watch_line as line
from libs.testing.apiserver.replies import Reply
from libs.testing.apiserver.requests import (
    LIST_FORMS,
    METADATA,
    METADATA_LIST,
    OBJECT_FORMS,
    ListOptions,
    Route,
    accepted_form,
    minimum_revision,
)
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.store import KindStore, Selection, Store, StoredObject
from libs.testing.apiserver.tables import metadata_alone, metadata_list, table
from libs.testing.apiserver.watches import (
    Present,
    ServerWatch,
    ServerWatches,
    WatchEvent,
    WatchStream,
)

_MAX_WAIT = 3.0
"""Seconds that a read waits for a future revision."""

_POLL_INTERVAL = 0.05
_MIN_WATCH_SECONDS = 1_800.0
"""Minimum seconds of a watch without a timeout."""


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
        accepted_form(request.accept, OBJECT_FORMS)
        kind = request.route.kind
        await self._wait_for(minimum_revision(request.query))
        stored = self._store.of_kind(kind).get(request.route.namespace, request.route.name)
        if stored is None:
            raise not_found(kind, request.route.name)
        return Reply(200, self.presented(request, stored.raw))

    def presented(self, request: ReadRequest, raw: bytes) -> bytes:
        """Return one object in the form that the request accepts."""
        form = accepted_form(request.accept, OBJECT_FORMS)
        if form == METADATA:
            return encoded(metadata_alone(decoded(raw)))
        return encoded(self._table(request, [decoded(raw)])) if form else raw

    async def list(
        self, request: ReadRequest, options: ListOptions, *, stale_changes: int | None
    ) -> Reply:
        """List objects; `stale_changes` is the age that a fault gives to a list of any age."""
        form = accepted_form(request.accept, LIST_FORMS)
        await self._wait_for(options.revision)
        kind, store = request.route.kind, self._store.of_kind(request.route.kind)
        now = self._store.revision
        past = None if stale_changes is None else store.revision_before(stale_changes, now=now)
        page = list_page(store, self._selection(request), options, now=now, stale=past)
        if not form:
            return Reply(200, encode_list(kind, page))
        items = [decoded(each.raw) for each in page.items]
        if form == METADATA_LIST:
            return Reply(200, encoded(metadata_list(page.metadata, items)))
        return Reply(200, encoded(self._table(request, items, metadata=page.metadata)))

    async def watch(
        self, request: ReadRequest, options: ListOptions, *, drop: DropWatch | None
    ) -> Reply:
        """Watch objects; `drop` is the fault that ends the watch."""
        present = self._presenter(request)
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
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0.0:
                raise resource_version_too_large(revision, self._store.revision)
            await self._clock.sleep(min(_POLL_INTERVAL, remaining))

    def _table(
        self,
        request: ReadRequest,
        objects: Sequence[Mapping[str, Any]],
        *,
        metadata: Mapping[str, Any] | None = None,
        headers: bool = True,
    ) -> dict[str, Any]:
        return table(
            request.route.kind,
            objects,
            now=self._clock.now(),
            include=request.query.get("includeObject", ""),
            metadata=metadata,
            headers=headers,
        )

    def _presenter(self, request: ReadRequest) -> Present | None:
        """Return a function from event type and object to the event's line in the accepted form;
        None where that is the object as it is stored.
        """
        form = accepted_form(request.accept, OBJECT_FORMS)
        if form == METADATA:
            return lambda event_type, raw: line(event_type, encoded(metadata_alone(decoded(raw))))
        return self._table_presenter(request) if form else None

    def _table_presenter(self, request: ReadRequest) -> Present:
        """Return a function from event type and object to the event's line with a table."""
        headers = True

        def present(event_type: str, raw: bytes) -> bytes:
            nonlocal headers
            table = self._table(request, [decoded(raw)], headers=headers)
            headers = False
            return line(event_type, encoded(table))

        return present


_TOO_OLD = "The resourceVersion for the provided list is too old."
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
_NOW = -1
"""The revision in the token of a page that continues as of now."""


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[StoredObject]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


class PageExpired(StatusError):
    """The revision of a page is forgotten; the token continues the list as of now."""

    def __init__(self, continue_token: str) -> None:
        super().__init__(410, "Expired", _EXPIRED)
        self._continue_token = continue_token

    def status(self) -> dict[str, Any]:
        return {**super().status(), "metadata": {"continue": self._continue_token}}


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: str


def list_page(
    store: KindStore, selection: Selection, options: ListOptions, *, now: int, stale: int | None
) -> ListPage:
    """Return a list or its next page; `stale` is the past revision of a list of any age."""
    if options.continue_token:
        token = _decode_token(options.continue_token)
        revision = now if token.rv == _NOW else token.rv
        if revision < store.oldest:
            raise PageExpired(_encode_token(_NOW, token.start))
        return _page(store, selection, revision, options.limit, now=now, after=token.start)
    if options.limit and options.revision:
        if options.revision < store.oldest:
            raise StatusError(410, "Expired", _TOO_OLD)
        return _page(store, selection, options.revision, options.limit, now=now)
    if stale is not None:
        return _page(store, selection, max(stale, options.revision), 0, now=now)
    # A real server answers revision 0 from its cache, which has no pages.
    limit = 0 if options.resource_version == "0" else options.limit
    return _page(store, selection, now, limit, now=now)


def _page(
    store: KindStore, selection: Selection, revision: int, limit: int, *, now: int, after: str = ""
) -> ListPage:
    namespace = selection.namespace
    found = (
        store.select(namespace, after=after)
        if revision == now
        else store.as_of(revision, namespace, after=after)
    )
    matching = (stored for stored in found if selection.matches(stored))
    if limit <= 0:
        return ListPage(items=list(matching), revision=revision)
    items: list[StoredObject] = []
    for stored in matching:
        if len(items) == limit:
            token = _encode_token(revision, items[-1].key + "\0")
            remaining = None if selection.by_selector else 1 + sum(1 for _ in matching)
            return ListPage(
                items=items, revision=revision, continue_token=token, remaining=remaining
            )
        items.append(stored)
    return ListPage(items=items, revision=revision)


def encode_list(kind: ResourceKind, page: ListPage) -> bytes:
    """Return the body of a list; items of built-in kinds have neither kind nor apiVersion."""
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": page.metadata}
    if kind.custom:
        return joined(head, (each.raw for each in page.items), opening=b"")
    skipped = len(prefix(kind.kind, kind.api_version))
    return joined(head, (memoryview(each.raw)[skipped:] for each in page.items), opening=b"{")


def _encode_token(revision: int, start: str) -> str:
    token = {"v": "meta.k8s.io/v1", "rv": revision, "start": start}
    return base64.urlsafe_b64encode(encoded(token)).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
