"""What a write changed: the leaves of an object by path, with their values before and after.

A path is the keys joined by dots; a key that holds punctuation of a path stands in brackets and
quotes, and an item of a list of objects is named by what identifies it there:
`metadata.labels["nvidia.com/gpu.present"]`, `status.conditions[type=Ready].status`. A list without
such names is one leaf. The journals of the simulated and of a real server share this language.
Pure; must know nothing of where objects come from.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

Changes = dict[str, tuple[Any, Any]]
"""Path to (before, after); what was not there is None. The values are the objects' own."""

_TYPE = frozenset({"apiVersion", "kind"})
"""How the object was asked for, which is not a part of what is stored."""

_BOOKKEEPING = frozenset({"managedFields", "resourceVersion", "generation"})
"""Of the metadata: changed by the server with every write, so no news."""

_PLAIN_KEY = re.compile(r"[^.\[\]/=,\"\s]+")
_PLAIN_VALUE = re.compile(r"[^\[\]=,\"\s]+")

_IDENTITIES = (("type",), ("key", "effect"), ("uid",), ("name",), ("ip",))
"""Of conditions and addresses, of taints, of owners, of containers and the like, of addresses of
pods; the first that tells all items apart counts."""

_Tree = Mapping[str, Any]
_Difference = tuple[str, Any, Any]
"""A part of a path, and what stands there before and after."""


def changed_paths(before: _Tree | None, after: _Tree | None) -> Changes:
    """None is an object that is not there: then every leaf of the other one has changed."""
    old, new = _without_bookkeeping(before), _without_bookkeeping(after)
    return {} if old == new else dict(_leaves("", old, new))


def _without_bookkeeping(whole: _Tree | None) -> _Tree | None:
    if whole is None:
        return None
    news = {key: value for key, value in whole.items() if key not in _TYPE}
    if isinstance(metadata := news.get("metadata"), Mapping):
        kept = cast(_Tree, metadata).items()
        news["metadata"] = {key: value for key, value in kept if key not in _BOOKKEEPING}
    return news


def _leaves(path: str, before: Any, after: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Of two that are not the same."""
    places = _differences(before, after)
    if places is None:
        yield path, (before, after)
        return
    for part, old, new in places:
        yield from _leaves((path + part).removeprefix("."), old, new)


def _differences(before: Any, after: Any) -> Iterable[_Difference] | None:
    """Those of two trees, or of one that came or went; None where there are leaves.

    An empty one that came or went is a leaf itself: else that would be no change.
    """
    if not before and not after:
        return None
    if _is_absent_or(Mapping, before) and _is_absent_or(Mapping, after):
        return _joined(before or {}, after or {}, _by_key)
    if _is_absent_or(list, before) and _is_absent_or(list, after):
        for identity in _IDENTITIES:
            old, new = _by_identity(before or [], identity), _by_identity(after or [], identity)
            if old is not None and new is not None:
                return _joined(old, new, str)
    return None


def _is_absent_or(kind: type, value: Any) -> bool:
    return value is None or isinstance(value, kind)


def _joined(before: _Tree, after: _Tree, named: Callable[[str], str]) -> Iterator[_Difference]:
    """Where they differ; only such entries are worth a name."""
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old != new:
            yield named(key), old, new


def _by_key(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]"


def _by_identity(items: Sequence[Any], identity: Sequence[str]) -> dict[str, Any] | None:
    """None where these fields are missing somewhere, or the same twice."""
    named: dict[str, Any] = {}
    for item in items:
        if not isinstance(item, Mapping):
            return None
        pairs: list[str] = []
        for field in identity:
            value = cast(_Tree, item).get(field)
            if not isinstance(value, str):
                return None
            pairs.append(f"{field}={value if _PLAIN_VALUE.fullmatch(value) else json.dumps(value)}")
        named[f"[{','.join(pairs)}]"] = item
    return named if len(named) == len(items) else None
