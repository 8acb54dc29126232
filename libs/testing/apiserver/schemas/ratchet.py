"""What an object was before, part by part: what did not change is not judged again."""

from collections.abc import Mapping
from typing import Any, Final, cast

GONE: Final = object()
"""There was nothing that this could be compared with."""


def earlier_entry(old: Any, name: str) -> Any:
    """What an entry of a map was."""
    return cast("dict[str, Any]", old).get(name, GONE) if isinstance(old, dict) else GONE


def earlier_item(old: Any, item: Any, schema: Mapping[str, Any]) -> Any:
    """What an item of a list was; only items of a list map are the same ones by their keys."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(item, dict):
        return GONE
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    wanted = cast("dict[str, Any]", item)
    for candidate in cast("list[Any]", old) if isinstance(old, list) else ():
        held = cast("dict[str, Any]", candidate) if isinstance(candidate, dict) else {}
        if held and all(held.get(key) == wanted.get(key) for key in keys):
            return held
    return GONE
