"""Objects as bytes: how they are written down, read back, and cut for lists and watches.

Bytes are made once, when an object is written; every list and watch after that only joins them.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
# The resourceVersion stands before anything that a user writes freely: `renumbered` relies on it.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encoded(value: object) -> bytes:
    """Any JSON value."""
    return _encode(value)


def decoded(raw: bytes) -> dict[str, Any]:
    """An object that was stored; the caller may change it."""
    return cast("dict[str, Any]", _decode(raw))


def ordered(thing: Mapping[str, Any]) -> dict[str, Any]:
    """kind, apiVersion and metadata first, each part of these in its place."""
    metadata: Mapping[str, Any] = thing["metadata"]
    return {
        "kind": thing["kind"],
        "apiVersion": thing["apiVersion"],
        "metadata": {
            key: value
            for key in _METADATA
            if (value := metadata.get(key)) not in _NOTHING  # a grace of 0 seconds is something
        },
        **{key: value for key, value in thing.items() if key not in _FIRST},
    }


_FIRST = frozenset({"kind", "apiVersion", "metadata"})
_NOTHING: tuple[Any, ...] = (None, "", [], {})


def prefix(kind: str, api_version: str) -> bytes:
    """How the bytes of every object of a kind begin."""
    return _encode({"kind": kind, "apiVersion": api_version})[:-1] + b","


def renumbered(raw: bytes, before: int, after: int) -> bytes:
    """The same object as of another revision."""
    return raw.replace(b'"resourceVersion":"%d"' % before, b'"resourceVersion":"%d"' % after, 1)


def joined(
    head: Mapping[str, Any], items: Iterable[bytes | memoryview], *, opening: bytes
) -> bytes:
    """A list: its head, then the items, each after `opening`."""
    parts: list[bytes | memoryview] = [_encode(head)[:-1], b',"items":[']
    between = b""
    for item in items:
        parts += (between + opening, item)
        between = b","
    parts.append(b"]}")
    return b"".join(parts)


def line(event: str, raw: bytes) -> bytes:
    """One event of a watch."""
    return b'{"type":"%s","object":%s}\n' % (event.encode(), raw)


def interned(pairs: Mapping[str, str]) -> dict[str, str]:
    """The same labels in the memory that other objects' have."""
    return {sys.intern(key): sys.intern(value) for key, value in pairs.items()}
