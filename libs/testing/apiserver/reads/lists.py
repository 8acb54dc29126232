"""Lists: selected objects of a kind as of one revision, whole or in pages."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.encoding import encoded, joined, prefix
from libs.testing.apiserver.requests.options import EXACT, ListOptions
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import KindStore, StoredObject

_TOO_OLD = "The resourceVersion for the provided list is too old."
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
_ANY = -1
"""In a page's token: as of now, whatever that is."""


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a list answers."""

    items: list[StoredObject]
    revision: int
    rest: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """Of the list."""
        whole: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.rest:
            whole["continue"] = self.rest
            if self.remaining is not None:
                whole["remainingItemCount"] = self.remaining
        return whole


class PageExpired(StatusError):
    """The list that a page belongs to is forgotten; the rest can be had as of now."""

    def __init__(self, rest: str) -> None:
        super().__init__(410, "Expired", _EXPIRED)
        self._rest = rest

    def status(self) -> dict[str, Any]:
        """The body of the answer."""
        return {**super().status(), "metadata": {"continue": self._rest}}


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: str


def list_page(
    shelf: KindStore, selection: Selection, options: ListOptions, *, now: int, stale: int | None
) -> ListPage:
    """A part of a list, or all; `stale` is the past revision that a list of any age is given."""
    if options.resume:
        token = _read(options.resume)
        revision = now if token.rv == _ANY else token.rv
        if revision < shelf.oldest:
            raise PageExpired(_write(_ANY, token.start))
        return _cut(shelf, selection, revision, options.limit, now=now, after=token.start)
    if options.match == EXACT or (not options.match and options.limit and options.number):
        if options.number < shelf.oldest:
            raise StatusError(410, "Expired", _TOO_OLD)
        return _cut(shelf, selection, options.number, options.limit, now=now, after="")
    if stale is not None:
        return _cut(shelf, selection, max(stale, options.number), 0, now=now, after="")
    # What may be of any age comes from a memory that knows no pages.
    limit = 0 if options.revision == "0" else options.limit
    return _cut(shelf, selection, now, limit, now=now, after="")


def _cut(
    shelf: KindStore, selection: Selection, revision: int, limit: int, *, now: int, after: str
) -> ListPage:
    place = selection.namespace
    found = (
        shelf.select(place, after=after)
        if revision == now
        else shelf.as_of(revision, place, after=after)
    )
    matching = (stored for stored in found if selection.matches(stored))
    if limit <= 0:
        return ListPage(items=list(matching), revision=revision)
    items: list[StoredObject] = []
    for stored in matching:
        if len(items) == limit:
            rest = _write(revision, items[-1].key + "\0")
            remaining = None if selection.by_selector else 1 + sum(1 for _ in matching)
            return ListPage(items=items, revision=revision, rest=rest, remaining=remaining)
        items.append(stored)
    return ListPage(items=items, revision=revision)


def encode_list(kind: ResourceKind, listed: ListPage) -> bytes:
    """The body of a list; objects of the server's own kinds do not say what they are."""
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": listed.metadata}
    if kind.custom:
        return joined(head, (as_version(kind, each.raw) for each in listed.items), opening=b"")
    said = len(prefix(kind.kind, kind.api_version))
    return joined(head, _without(listed.items, said), opening=b"{")


def _without(items: Iterable[StoredObject], said: int) -> Iterator[memoryview]:
    for stored in items:
        yield memoryview(stored.raw)[said:]


def as_version(kind: ResourceKind, raw: bytes) -> bytes:
    """An object as this version has it: only its name for itself differs."""
    head = prefix(kind.kind, kind.api_version)
    if not kind.custom or raw.startswith(head):
        return raw
    # Whatever version it was stored in: its definition may have had another one then.
    opening = head[: head.rindex(b":") + 2]
    return head + raw[raw.index(b'",', len(opening)) + 2 :]


def _write(revision: int, start: str) -> str:
    token = encoded({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _read(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def decode_items(kind: ResourceKind, listed: ListPage) -> list[Mapping[str, Any]]:
    """The listed objects, read."""
    return [
        cast("Mapping[str, Any]", msgspec.json.decode(as_version(kind, each.raw)))
        for each in listed.items
    ]
