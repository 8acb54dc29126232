"""Items of sets and of lists by key that are there twice."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from libs.testing.apiserver.objects.comparison import same
from libs.testing.apiserver.schemas.causes import Cause, duplicate, invalid


def duplicate_items(obj: Any, old: Any, root: Mapping[str, Any]) -> list[Cause]:
    """Every second one of its kind; an object that had them before may keep them."""
    if old is not None and any(_repeats(old, root, "")):
        return []
    return list(_repeats(obj, root, ""))


def _repeats(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if isinstance(value, dict):
        properties: Mapping[str, Any] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, given in cast("dict[str, Any]", value).items():
            if isinstance(others, Mapping):
                below = cast("Mapping[str, Any]", others)
                yield from _repeats(given, below, f"{path}[{name}]")
            elif name in properties:
                yield from _repeats(given, properties[name], f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        match schema.get("x-kubernetes-list-type"):
            case "set":
                yield from _twice(items, path)
            case "map":
                yield from _twice_by_key(items, schema, path)
            case _:
                pass
        below = schema.get("items")
        for at, item in enumerate(items if below else ()):
            yield from _repeats(item, cast("Mapping[str, Any]", below), f"{path}[{at}]")


def _twice_by_key(items: list[Any], schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for at, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            words = "must be an object for an array of list-type map"
            yield invalid(f"{path}[{at}]", item, words)
            return
    names: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    maps = [cast("dict[str, Any]", item or {}) for item in items]
    yield from _twice([{name: m[name] for name in names if name in m} for m in maps], path)


def _twice(values: list[Any], path: str) -> Iterator[Cause]:
    seen: list[Any] = []
    told: list[Any] = []
    for at, value in enumerate(values):
        if not any(same(value, other) for other in seen):
            seen.append(value)
        elif not any(same(value, other) for other in told):
            told.append(value)
            yield duplicate(f"{path}[{at}]", value)
