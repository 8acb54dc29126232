"""Parts of an object that may not be there, with the types that the kinds' shapes promise."""

from collections.abc import Mapping
from typing import Any, cast

Thing = dict[str, Any]


def part(thing: Mapping[str, Any], *path: str) -> Thing:
    """The map there; an empty one, which is no part of the object, where there is none."""
    value: Any = thing
    for name in path:
        value = value.get(name) or {}
    return cast("Thing", value)


def items(thing: Mapping[str, Any], *path: str) -> list[Thing]:
    """The maps listed there."""
    return cast("list[Thing]", part(thing, *path[:-1]).get(path[-1]) or [])


def words(thing: Mapping[str, Any], *path: str) -> list[str]:
    """The texts listed there."""
    return cast("list[str]", part(thing, *path[:-1]).get(path[-1]) or [])


def made(thing: Thing, name: str) -> Thing:
    """The map there; a new one, now part of the object, where there was none."""
    value = thing.get(name)
    if value is None:
        value = thing[name] = {}
    return cast("Thing", value)


def kept(thing: Mapping[str, Any], name: str) -> Thing:
    """The one entry, or nothing, to be put into another object."""
    return {name: thing[name]} if name in thing else {}
