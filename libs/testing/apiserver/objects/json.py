"""Objects as JSON: access to optional parts, and bytes that lists and watches join."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

JsonObject = dict[str, Any]


def get_map(obj: Mapping[str, Any], *path: str) -> JsonObject:
    """Return the map at this path, or a detached empty map."""
    value: Any = obj
    for name in path:
        value = value.get(name) or {}
    return cast("JsonObject", value)


def get_maps(obj: Mapping[str, Any], *path: str) -> list[JsonObject]:
    return cast("list[JsonObject]", get_map(obj, *path[:-1]).get(path[-1]) or [])


def get_strings(obj: Mapping[str, Any], *path: str) -> list[str]:
    return cast("list[str]", get_map(obj, *path[:-1]).get(path[-1]) or [])


def ensure_map(obj: JsonObject, name: str) -> JsonObject:
    """Return the map at this name; add an empty map if it is missing."""
    value = obj.get(name)
    if value is None:
        value = obj[name] = {}
    return cast("JsonObject", value)


def pick(obj: Mapping[str, Any], name: str) -> JsonObject:
    """Return a map with this one entry, or an empty map."""
    return {name: obj[name]} if name in obj else {}


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
# `renumbered` relies on resourceVersion coming before everything that a user writes freely.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encoded(value: object) -> bytes:
    return _encode(value)


def decoded(raw: bytes) -> dict[str, Any]:
    """Decode a stored object, which the caller may change."""
    return cast("dict[str, Any]", _decode(raw))


def ordered(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with kind, apiVersion and metadata first, in a fixed order."""
    metadata: Mapping[str, Any] = obj["metadata"]
    return {
        "kind": obj["kind"],
        "apiVersion": obj["apiVersion"],
        "metadata": {
            key: value
            for key in _METADATA
            if (value := metadata.get(key)) not in _EMPTY  # a grace period of 0 is not empty
        },
        **{key: value for key, value in obj.items() if key not in _FIRST},
    }


_FIRST = frozenset({"kind", "apiVersion", "metadata"})
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def prefix(kind: str, api_version: str) -> bytes:
    """Return the first bytes of every object of a kind."""
    return _encode({"kind": kind, "apiVersion": api_version})[:-1] + b","


def renumbered(raw: bytes, before: int, after: int) -> bytes:
    """Return the object with another revision."""
    return raw.replace(b'"resourceVersion":"%d"' % before, b'"resourceVersion":"%d"' % after, 1)


def joined(
    head: Mapping[str, Any], items: Iterable[bytes | memoryview], *, opening: bytes
) -> bytes:
    """Return a list of its head and the items, each after `opening`."""
    parts: list[bytes | memoryview] = [_encode(head)[:-1], b',"items":[']
    separator = b""
    for item in items:
        parts += (separator + opening, item)
        separator = b","
    parts.append(b"]}")
    return b"".join(parts)


def watch_line(event: str, raw: bytes) -> bytes:
    """Return the line of a watch event."""
    return b'{"type":"%s","object":%s}\n' % (event.encode(), raw)


def interned(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the labels with interned strings, which the objects of a fleet share."""
    return {sys.intern(key): sys.intern(value) for key, value in pairs.items()}
