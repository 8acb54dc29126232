"""Access to optional parts of an object, typed as the kinds' shapes declare them."""

from collections.abc import Mapping
from typing import Any, cast

JsonObject = dict[str, Any]


def get_map(thing: Mapping[str, Any], *path: str) -> JsonObject:
    """Return the map at this path; a detached empty one where it is missing."""
    value: Any = thing
    for name in path:
        value = value.get(name) or {}
    return cast("JsonObject", value)


def get_maps(thing: Mapping[str, Any], *path: str) -> list[JsonObject]:
    return cast("list[JsonObject]", get_map(thing, *path[:-1]).get(path[-1]) or [])


def get_strings(thing: Mapping[str, Any], *path: str) -> list[str]:
    return cast("list[str]", get_map(thing, *path[:-1]).get(path[-1]) or [])


def ensure_map(thing: JsonObject, name: str) -> JsonObject:
    """Return the map at this name; add an empty one where it is missing."""
    value = thing.get(name)
    if value is None:
        value = thing[name] = {}
    return cast("JsonObject", value)


def pick(thing: Mapping[str, Any], name: str) -> JsonObject:
    """Return a map with this one entry, or an empty map."""
    return {name: thing[name]} if name in thing else {}
