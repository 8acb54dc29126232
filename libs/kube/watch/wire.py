"""A watch's lines as the server writes them. Pure."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from libs.kube.errors import Unreadable
from libs.kube.views import Object

V = TypeVar("V", bound=Object)


class Added(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="ADDED"):
    """An object that is new, or newly selected."""

    object: V


class Modified(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="MODIFIED"):
    """An object that is other than before."""

    object: V


class Removed(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="DELETED"):
    """An object that is gone, or is not selected any more."""

    object: V


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Revised(msgspec.Struct, frozen=True):
    metadata: _Revision


class Mark(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    """A bookmark."""

    object: _Revised


class Failed(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    """The end of the watch, and why."""

    object: msgspec.Raw


Event = Added[V] | Modified[V] | Removed[V] | Mark | Failed


def number(revision: str, *, tried: str) -> int:
    """Revisions are numbers that grow: so it always was, and Kubernetes 1.35 made it a promise."""
    if not revision.isdecimal():
        raise Unreadable(tried, f"the revision {revision!r} is no number")
    return int(revision)


def check(items: Iterable[Object], *, tried: str) -> None:
    """Whether each has a revision: what has none cannot be followed."""
    for item in items:
        number(item.metadata.resource_version, tried=tried)


def decoder(view: type[V]) -> msgspec.json.Decoder[Any]:
    """For one line of a watch; a type that it does not know is an error."""
    # The type is the first field of an event, so it is read in one go.
    event: Any = Added[view] | Modified[view] | Removed[view] | Mark | Failed
    return msgspec.json.Decoder(event)
