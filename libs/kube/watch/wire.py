"""Decode the lines of a watch."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from libs.kube.errors import MalformedResponse
from libs.kube.views import Object

V = TypeVar("V", bound=Object)


class AddedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="ADDED"):
    object: V


class ModifiedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="MODIFIED"):
    object: V


class DeletedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="DELETED"):
    object: V


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Revised(msgspec.Struct, frozen=True):
    metadata: _Revision


class BookmarkEvent(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    object: _Revised


class ErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    object: msgspec.Raw


WireEvent = AddedEvent[V] | ModifiedEvent[V] | DeletedEvent[V] | BookmarkEvent | ErrorEvent


def parse_revision(revision: str, *, tried: str) -> int:
    """Return the revision as a number; Kubernetes 1.35 guarantees that revisions are growing
    numbers.
    """
    if not revision.isdecimal():
        raise MalformedResponse(tried, f"the revision {revision!r} is not a number")
    return int(revision)


def require_revisions(items: Iterable[Object], *, tried: str) -> None:
    """Raise `MalformedResponse` unless every item has a revision."""
    for item in items:
        parse_revision(item.metadata.resource_version, tried=tried)


def event_decoder(view: type[V]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for one line; an unknown event type is an error."""
    # `type` is the first field of an event, so msgspec decodes it in one pass.
    event: Any = (
        AddedEvent[view] | ModifiedEvent[view] | DeletedEvent[view] | BookmarkEvent | ErrorEvent
    )
    return msgspec.json.Decoder(event)


class LineBuffer:
    """Splits chunks into lines; a long line is joined only once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines completed by this chunk, without newlines and empty lines."""
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        if self._parts:
            chunk = b"".join((*self._parts, chunk))
        *lines, rest = chunk.split(b"\n")
        self._parts = [rest] if rest else []
        return [line for line in lines if line]

    @property
    def has_partial(self) -> bool:
        return bool(self._parts)
