"""Decode responses: pages, views, eviction results and errors."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec

from libs.kube.errors import KubeError, MalformedResponse, NotFound, UnknownKind, status_error
from libs.kube.resources import Resource
from libs.kube.transport import Request, Response, describe_request
from libs.kube.views import Object

V = TypeVar("V", bound=Object)
S = TypeVar("S", bound=msgspec.Struct)


class Page(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A page of a list at one revision."""

    items: tuple[V, ...]
    resource_version: str
    continue_token: str
    """Token for the next page; empty on the last."""


class Evicted(msgspec.Struct, frozen=True):
    """The pod is marked for deletion and ends after its grace period."""


class PodGone(msgspec.Struct, frozen=True):
    """The pod of that uid does not exist any more."""


class BlockedByBudget(msgspec.Struct, frozen=True):
    """A disruption budget forbids the eviction for now; `why` is the server's text."""

    why: str
    retry_after: float | None


EvictionResult = Evicted | PodGone | BlockedByBudget


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class _Confirmation(msgspec.Struct, frozen=True):
    kind: str


class _Head(msgspec.Struct, frozen=True):
    metadata: _ListMeta


class _Listing(msgspec.Struct, Generic[V], frozen=True):
    metadata: _ListMeta
    items: tuple[V, ...] | None = None


_HEAD = 4096
"""Bytes by which a list's `items` have begun."""

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(body: bytes, view: type[S], *, tried: str) -> S:
    """Decode the body; `MalformedResponse` names the field at fault."""
    decoder = _decoders.get(view)
    if decoder is None:
        decoder = _decoders[view] = msgspec.json.Decoder(view)
    try:
        return decoder.decode(body)
    except ValueError as error:
        raise MalformedResponse(
            tried, f"the response cannot be read as {view.__name__.lstrip('_')}: {error}"
        ) from error


def require_api_object(body: bytes, *, tried: str) -> None:
    """Raise `MalformedResponse` unless an API server wrote it; proxies response 200 as well."""
    decode(body, _Confirmation, tried=tried)


def decode_page(body: bytes, resource: Resource[V], *, path: str) -> Page[V]:
    listing = decode(body, _Listing[resource.view], tried=f"GET {path}")
    meta = listing.metadata
    return Page(
        items=listing.items or (),
        resource_version=meta.resource_version,
        continue_token=meta.continue_token,
    )


def join_pages(pages: Sequence[Page[V]], *, path: str) -> Page[V]:
    """Join pages to one list. Pages of several revisions would make a watch from the last miss
    changes.
    """
    revisions = {page.resource_version for page in pages}
    if len(revisions) > 1:
        message = f"the pages of the list have different revisions: {', '.join(sorted(revisions))}"
        raise MalformedResponse(f"GET {path}", message)
    items = tuple(chain.from_iterable(page.items for page in pages))
    return msgspec.structs.replace(pages[-1], items=items)


def continue_token_of(body: bytes, *, path: str) -> str:
    """Return the token for the next page without decoding the objects of this one."""
    # It precedes the objects, which are megabytes, except in lists of custom kinds.
    head, objects, _ = body[:_HEAD].partition(b',"items":')
    before = objects and b'"metadata":' in head
    return decode(
        head + b"}" if before else body, _Head, tried=f"GET {path}"
    ).metadata.continue_token


@contextmanager
def unknown_kind_errors(resource: Resource[Any]) -> Generator[None]:
    """Turn a `NotFound` without an object name into `UnknownKind`, with what to do."""
    try:
        yield
    except NotFound as error:
        if error.missing:
            raise
        what = f"the server does not serve {resource.plural} of {resource.api_version}"
        if resource.is_custom:
            crd = f"{resource.plural}.{resource.group}"
            what += f": install the CustomResourceDefinition {crd}"
        raise UnknownKind(error.tried, what, code=error.code, reason=error.reason) from error


def is_success(response: Response) -> bool:
    """Return whether the status is 2xx; an API server never redirects."""
    return 200 <= response.status < 300


def response_error(request: Request, response: Response, body: bytes) -> KubeError:
    return status_error(
        describe_request(request),
        code=response.status,
        body=body,
        retry_after=response.headers.get("retry-after"),
    )
