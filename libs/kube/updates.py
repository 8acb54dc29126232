"""What a reflector delivers: lists, changes and proofs of progress."""

from typing import Generic, TypeVar

import msgspec

from libs.kube.reads import UnreadableObject
from libs.kube.views import Object

V = TypeVar("V", bound=Object)


class Listed(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """All objects as of one revision."""

    items: tuple[V, ...]
    revision: int
    requested_at: float
    """Monotonic time of the request: the list is at least as new."""
    unreadable: tuple[UnreadableObject, ...] = ()
    is_restored: bool = False
    """The cluster was restored to an earlier state; earlier revisions mean nothing now."""


class Changed(msgspec.Struct, Generic[V], frozen=True):
    """An object was added or modified."""

    object: V
    revision: int


class Unread(msgspec.Struct, frozen=True):
    """An object was added or modified, and cannot be read."""

    object: UnreadableObject
    revision: int


class Deleted(msgspec.Struct, Generic[V], frozen=True):
    """An object was deleted or is no longer selected; `object` is its last state."""

    object: V
    revision: int


class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to this revision has been delivered."""

    revision: int


Update = Listed[V] | Changed[V] | Unread | Deleted[V] | Bookmark
