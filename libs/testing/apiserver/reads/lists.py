"""Lists: the selected objects of a kind as of one revision, complete or in pages."""

import base64
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.encoding import encoded, joined, prefix
from libs.testing.apiserver.requests.options import ListOptions
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
