"""What the server's answers are read as: pages, views, verdicts on evictions, and refusals.

Pure: it knows neither requests under way nor deadlines.
"""

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
    """A part of a list, as of one revision."""

    items: tuple[V, ...]
    resource_version: str
    continue_token: str
    """Asks for the next page; empty at the last."""


class Evicted(msgspec.Struct, frozen=True):
    """The server has marked the pod for deletion; it is gone when its grace is over."""


class PodGone(msgspec.Struct, frozen=True):
    """The pod of that uid is gone already."""


class BlockedByBudget(msgspec.Struct, frozen=True):
    """A budget forbids it now, in the server's words."""

    why: str
    retry_after: float | None


EvictionResult = Evicted | PodGone | BlockedByBudget


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    rest: str = msgspec.field(name="continue", default="")


class _Confirmation(msgspec.Struct, frozen=True):
    kind: str


class _Head(msgspec.Struct, frozen=True):
    metadata: _ListMeta


class _Listing(msgspec.Struct, Generic[V], frozen=True):
    metadata: _ListMeta
    items: tuple[V, ...] | None = None


_HEAD = 4096
"""Bytes in which a list has begun to tell its objects."""

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(body: bytes, view: type[S], *, tried: str) -> S:
    """The answer as a view; `Unreadable` names the field that is not what it should be."""
    decoder = _decoders.get(view)
    if decoder is None:
        decoder = _decoders[view] = msgspec.json.Decoder(view)
    try:
        return decoder.decode(body)
    except ValueError as error:
        raise MalformedResponse(
            tried, f"the answer cannot be read as {view.__name__.lstrip('_')}: {error}"
        ) from error


def require_api_object(body: bytes, *, tried: str) -> None:
    """`Unreadable` unless an API server wrote it: others say 200 too, and have done nothing."""
    decode(body, _Confirmation, tried=tried)


def decode_page(body: bytes, resource: Resource[V], *, path: str) -> Page[V]:
    """A part of a list."""
    listing = decode(body, _Listing[resource.view], tried=f"GET {path}")
    meta = listing.metadata
    return Page(
        items=listing.items or (), resource_version=meta.resource_version, continue_token=meta.rest
    )


def join_pages(parts: Sequence[Page[V]], *, path: str) -> Page[V]:
    """One list; of several revisions it would be none: a watch from the last would miss changes."""
    revisions = {part.resource_version for part in parts}
    if len(revisions) > 1:
        words = f"the parts of the list are of different revisions: {', '.join(sorted(revisions))}"
        raise MalformedResponse(f"GET {path}", words)
    items = tuple(chain.from_iterable(part.items for part in parts))
    return msgspec.structs.replace(parts[-1], items=items)


def continue_token_of(body: bytes, *, path: str) -> str:
    """What asks for the part after this one, without reading the objects of this one."""
    # A server writes it before the objects, which are megabytes; but of custom kinds after them.
    head, objects, _ = body[:_HEAD].partition(b',"items":')
    before = objects and b'"metadata":' in head
    return decode(head + b"}" if before else body, _Head, tried=f"GET {path}").metadata.rest


@contextmanager
def unknown_kind_errors(resource: Resource[Any]) -> Generator[None]:
    """Where the server misses no object but the kind itself, say so, and what to do."""
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


def is_success(answer: Response) -> bool:
    """Whether it did what was asked; a redirection, which no API server gives, did not."""
    return 200 <= answer.status < 300


def response_error(request: Request, answer: Response, body: bytes) -> KubeError:
    """The error that this answer stands for."""
    return status_error(
        describe_request(request),
        code=answer.status,
        body=body,
        retry_after=answer.headers.get("retry-after"),
    )
