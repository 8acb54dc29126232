"""The paths of `Revision.changed`, and objects put together from them.

A path is keys joined by dots, a key with punctuation in brackets and quotes, an item of a list by
what identifies it: `status.conditions[type=Ready].status`. Pure.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

_STRING = r'"(?:[^"\\]|\\.)*"'
_PAIR = rf'[^\s=\[\],"]+=(?:{_STRING}|[^\[\]=,"\s]+)'
_SEGMENT = re.compile(
    rf'\.?(?P<plain>[^.\[\]/=,"\s]+)|\[(?P<quoted>{_STRING})\]|\[(?P<item>{_PAIR}(?:,{_PAIR})*)\]'
)
_PAIRS = re.compile(rf'([^\s=\[\],"]+)=({_STRING}|[^\[\]=,"\s]+)')

Item = tuple[tuple[str, str], ...]
"""What identifies an item of a list: fields with their values."""
Segment = str | Item


@lru_cache(maxsize=4096)
def segments(path: str) -> tuple[Segment, ...]:
    """The parts of a path."""
    found: list[Segment] = []
    for match in _SEGMENT.finditer(path):
        if (plain := match["plain"]) is not None:
            found.append(plain)
        elif (quoted := match["quoted"]) is not None:
            found.append(json.loads(quoted))
        else:
            pairs = _PAIRS.findall(match["item"])
            found.append(tuple((name, _unquoted(value)) for name, value in pairs))
    return tuple(found)


def _unquoted(value: str) -> str:
    return json.loads(value) if value.startswith('"') else value


def label_path(key: str) -> str:
    """The path of a label whose key holds punctuation, as all of ours do."""
    return f"metadata.labels[{json.dumps(key)}]"


def annotation_path(key: str) -> str:
    """The path of such an annotation."""
    return f"metadata.annotations[{json.dumps(key)}]"


@lru_cache(maxsize=4096)
def metadata_key(path: str) -> tuple[str, str] | None:
    """Which map of the metadata a path is in, and its key there."""
    parts = segments(path)
    if len(parts) != 3 or parts[0] != "metadata" or parts[1] not in ("labels", "annotations"):
        return None
    return cast(str, parts[1]), cast(str, parts[2])


def set_path(whole: dict[str, Any], path: str, value: Any) -> None:
    """Set what stands at a path of an object; None takes it away, and what is empty then."""
    _put(whole, segments(path), value)


def _put(place: Any, parts: tuple[Segment, ...], value: Any) -> None:
    first, rest = parts[0], parts[1:]
    if isinstance(first, tuple):
        _put_item(cast(list[Any], place), first, rest, value)
        return
    tree = cast(dict[str, Any], place)
    if not rest:
        if value is None:
            tree.pop(first, None)
        else:
            tree[first] = value
        return
    kind = list if isinstance(rest[0], tuple) else dict
    if not isinstance(tree.get(first), kind):
        if value is None:
            return
        tree[first] = kind()
    _put(tree[first], rest, value)
    if value is None and not tree[first]:
        del tree[first]


def _put_item(items: list[Any], which: Item, rest: tuple[Segment, ...], value: Any) -> None:
    for item in items:
        if all(item.get(name) == wanted for name, wanted in which):
            break
    else:
        if value is None:
            return
        item = dict(which)
        items.append(item)
    if rest:
        _put(item, rest, value)
    if value is None and any(name not in item for name, _ in which):
        items.remove(item)


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every path of an object's maps, with what stands there; a list is one leaf."""
    for key, value in tree.items():
        part = f".{key}" if re.fullmatch(r'[^.\[\]/=,"\s]+', key) else f"[{json.dumps(key)}]"
        here = (path + part).removeprefix(".")
        if isinstance(value, Mapping) and value:
            yield from leaves(cast("Mapping[str, Any]", value), here)
        else:
            yield here, value
