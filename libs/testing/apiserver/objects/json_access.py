"""Parts of an object that may not be there, with the types that the kinds' shapes promise."""

from collections.abc import Mapping
from typing import Any, cast

JsonObject = dict[str, Any]


def get_map(thing: Mapping[str, Any], *path: str) -> JsonObject:
    """The map there; an empty one, which is no part of the object, where there is none."""
    value: Any = thing
    for name in path:
        value = value.get(name) or {}
    return cast("JsonObject", value)


def get_maps(thing: Mapping[str, Any], *path: str) -> list[JsonObject]:
    """The maps listed there."""
    return cast("list[JsonObject]", get_map(thing, *path[:-1]).get(path[-1]) or [])


def get_strings(thing: Mapping[str, Any], *path: str) -> list[str]:
    """The texts listed there."""
    return cast("list[str]", get_map(thing, *path[:-1]).get(path[-1]) or [])


def ensure_map(thing: JsonObject, name: str) -> JsonObject:
    """The map there; a new one, now part of the object, where there was none."""
    value = thing.get(name)
    if value is None:
        value = thing[name] = {}
    return cast("JsonObject", value)


def pick(thing: Mapping[str, Any], name: str) -> JsonObject:
    """The one entry, or nothing, to be put into another object."""
    return {name: thing[name]} if name in thing else {}
