"""A watch's lines as the server writes them. Pure."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from libs.kube.errors import MalformedResponse
from libs.kube.views import Object

V = TypeVar("V", bound=Object)


class AddedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="ADDED"):
    """An object that is new, or newly selected."""

    object: V


class ModifiedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="MODIFIED"):
    """An object that is other than before."""

    object: V


class DeletedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="DELETED"):
    """An object that is gone, or is not selected any more."""

    object: V


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Revised(msgspec.Struct, frozen=True):
    metadata: _Revision


class BookmarkEvent(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    """A bookmark."""

    object: _Revised


class ErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    """The end of the watch, and why."""

    object: msgspec.Raw


WireEvent = AddedEvent[V] | ModifiedEvent[V] | DeletedEvent[V] | BookmarkEvent | ErrorEvent


def parse_revision(revision: str, *, tried: str) -> int:
    """Revisions are numbers that grow: so it always was, and Kubernetes 1.35 made it a promise."""
    if not revision.isdecimal():
        raise MalformedResponse(tried, f"the revision {revision!r} is no number")
    return int(revision)


def require_revisions(items: Iterable[Object], *, tried: str) -> None:
    """Whether each has a revision: what has none cannot be followed."""
    for item in items:
        parse_revision(item.metadata.resource_version, tried=tried)


def event_decoder(view: type[V]) -> msgspec.json.Decoder[Any]:
    """For one line of a watch; a type that it does not know is an error."""
    # The type is the first field of an event, so it is read in one go.
    event: Any = (
        AddedEvent[view] | ModifiedEvent[view] | DeletedEvent[view] | BookmarkEvent | ErrorEvent
    )
    return msgspec.json.Decoder(event)


class LineBuffer:
    """What is fed in comes out by whole lines; a long line is put together only once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this completes, without their ends; none of them is empty."""
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        if self._parts:
            chunk = b"".join((*self._parts, chunk))
        *whole, rest = chunk.split(b"\n")
        self._parts = [rest] if rest else []
        return [line for line in whole if line]

    @property
    def has_partial(self) -> bool:
        """Whether a line has begun that has not ended."""
        return bool(self._parts)
