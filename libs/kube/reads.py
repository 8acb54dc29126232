"""Reads of the client: one object, a page of a list, or a whole list."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, Unpack

import msgspec

from libs.kube.errors import MalformedResponse
from libs.kube.requests import (
    DEFAULT_TIMEOUT,
    JSON,
    METADATA_LIST,
    BaseClient,
    decode,
    unknown_kind_errors,
)
from libs.kube.resources import Resource, Selection
from libs.kube.views import Object, View

V = TypeVar("V", bound=Object)


class Page(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A page of a list at one revision."""

    items: tuple[V, ...]
    resource_version: str
    continue_token: str
    """Token for the next page; empty on the last."""
    unreadable: tuple["UnreadableObject", ...] = ()


class _Name(View, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class NamedObject(View, frozen=True, kw_only=True):
    """What is read of an object whose other fields cannot be read."""

    metadata: _Name


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object whose fields are not what its kind promises, and why; the others are read."""

    key: str
    problem: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class _Head(msgspec.Struct, frozen=True):
    metadata: _ListMeta


class _Listing(msgspec.Struct, Generic[V], frozen=True):
    metadata: _ListMeta
    items: tuple[V, ...] | None = None


class _RawListing(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] = ()


_HEAD = 4096
"""Bytes by which a list's `items` have begun."""


class ReadClient(BaseClient):
    async def get(
        self,
        resource: Resource[V],
        name: str,
        *,
        namespace: str = "",
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        path = resource.path(namespace=namespace, name=name)
        with unknown_kind_errors(resource):
            body = await self.request("GET", path, within=within)
        return decode(body, resource.view, tried=f"GET {path}")

    async def list_page(
        self,
        resource: Resource[V],
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
        within: float = 30.0,
        **selection: Unpack[Selection],
    ) -> Page[V]:
        """Return up to `limit` objects; `continue_token` is that of the previous page."""
        query = {"continue": continue_token, "resourceVersion": resource_version}
        path, query = selected(resource, selection, limit=str(limit), **query)
        return decode_page(await self._get_list(resource, path, query, within), resource, path=path)

    async def list_all(
        self,
        resource: Resource[V],
        *,
        limit: int = 500,
        within: float = 30.0,
        **selection: Unpack[Selection],
    ) -> Page[V]:
        """Return all objects as of one revision; `within` limits each page.

        The next page is requested while the current one is decoded. Raise `MalformedResponse` if
        the pages do not belong together.
        """
        path, query = selected(resource, selection, limit=str(limit))
        pages: list[Page[V]] = []
        tokens = {""}
        body = await self._get_list(resource, path, query, within)
        while token := continue_token_of(body, path=path):
            if token in tokens:
                raise MalformedResponse(
                    f"GET {path}", "the server repeats a continue token of this list"
                )
            tokens.add(token)
            following = self._get_list(resource, path, query | {"continue": token}, within)
            task = asyncio.create_task(following, name=f"next page of {path}")
            try:
                await asyncio.sleep(0)  # send the request before decoding this page
                pages.append(decode_page(body, resource, path=path))
                del body  # free megabytes before the next page arrives
                body = await task
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
        pages.append(decode_page(body, resource, path=path))
        return join_pages(pages, path=path)

    async def _get_list(
        self, resource: Resource[Any], path: str, query: Mapping[str, str], within: float
    ) -> bytes:
        with unknown_kind_errors(resource):
            accept = METADATA_LIST if resource.metadata_only else JSON
            return await self.request("GET", path, query=query, accept=accept, within=within)


def selected(
    resource: Resource[Any], selection: Selection, **query: str
) -> tuple[str, dict[str, str]]:
    """Return the path of a list or watch, and its query without empty parameters."""
    query["labelSelector"] = selection.get("labels", "")
    query["fieldSelector"] = selection.get("fields", "")
    path = resource.path(namespace=selection.get("namespace", ""))
    return path, {key: value for key, value in query.items() if value}


def decode_page(body: bytes, resource: Resource[V], *, path: str) -> Page[V]:
    tried, unreadable = f"GET {path}", list[UnreadableObject]()
    try:
        listing = decode(body, _Listing[resource.view], tried=tried)
        items, meta = listing.items or (), listing.metadata
    except MalformedResponse:
        raw = decode(body, _RawListing, tried=tried)
        meta = raw.metadata
        items = tuple(_readable(raw.items, resource, unreadable, tried=tried))
    return Page(
        items=items,
        resource_version=meta.resource_version,
        continue_token=meta.continue_token,
        unreadable=tuple(unreadable),
    )


def _readable(
    items: Iterable[msgspec.Raw],
    resource: Resource[V],
    unreadable: list[UnreadableObject],
    *,
    tried: str,
) -> Iterator[V]:
    """Decode each object by itself; add those that cannot be read to `unreadable`."""
    for item in items:
        try:
            yield decode(item, resource.view, tried=tried)
        except MalformedResponse as error:
            key = decode(item, NamedObject, tried=tried).metadata.key
            unreadable.append(UnreadableObject(key, error.message))


def join_pages(pages: Sequence[Page[V]], *, path: str) -> Page[V]:
    """Join pages to one list. Pages of several revisions would make a watch from the last miss
    changes.
    """
    revisions = {page.resource_version for page in pages}
    if len(revisions) > 1:
        message = f"the pages of the list have different revisions: {', '.join(sorted(revisions))}"
        raise MalformedResponse(f"GET {path}", message)
    items = tuple(chain.from_iterable(page.items for page in pages))
    unreadable = tuple(chain.from_iterable(page.unreadable for page in pages))
    return msgspec.structs.replace(pages[-1], items=items, unreadable=unreadable)


def continue_token_of(body: bytes, *, path: str) -> str:
    """Return the token for the next page without decoding the objects of this one."""
    # The token precedes the objects, which are megabytes, except in lists of custom kinds.
    head, objects, _ = body[:_HEAD].partition(b',"items":')
    before = objects and b'"metadata":' in head
    return decode(
        head + b"}" if before else body, _Head, tried=f"GET {path}"
    ).metadata.continue_token
