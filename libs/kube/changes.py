"""Compare two states of an object: the changed leaves by path, with the values before and after.

A path is the keys joined by dots. A key with special characters stands in brackets and quotes, and
an item of a list of objects is named by its identifying fields:
`metadata.labels["nvidia.com/gpu.present"]`, `status.conditions[type=Ready].status`. A list without
such fields is one leaf. The journals of the simulated and of a real API server share this format.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

Changes = dict[str, tuple[Any, Any]]
"""Path to (before, after); None where the value is absent. The values are not copied."""

_TYPE = frozenset({"apiVersion", "kind"})
"""Depends on the request and is not stored."""

_BOOKKEEPING = frozenset({"managedFields", "resourceVersion", "generation"})
"""Metadata that the server changes with every write."""

_PLAIN_KEY = re.compile(r"[^.\[\]/=,\"\s]+")
_PLAIN_VALUE = re.compile(r"[^\[\]=,\"\s]+")

_IDENTITIES = (("type",), ("key", "effect"), ("uid",), ("name",), ("ip",))
"""Identifying fields of conditions and addresses; taints; owners; containers and the like; pod
addresses. The first that is unique among the items counts.
"""

_Tree = Mapping[str, Any]
_Difference = tuple[str, Any, Any]
"""A part of a path, with the value before and after."""


def changed_paths(before: _Tree | None, after: _Tree | None) -> Changes:
    """Return the changed leaves. None stands for an absent object: every leaf of the other one has
    changed.
    """
    old, new = _without_bookkeeping(before), _without_bookkeeping(after)
    return {} if old == new else dict(_leaves("", old, new))


def _without_bookkeeping(tree: _Tree | None) -> _Tree | None:
    if tree is None:
        return None
    stored = {key: value for key, value in tree.items() if key not in _TYPE}
    if isinstance(metadata := stored.get("metadata"), Mapping):
        fields = cast(_Tree, metadata).items()
        stored["metadata"] = {key: value for key, value in fields if key not in _BOOKKEEPING}
    return stored


def _leaves(path: str, before: Any, after: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    differences = _differences(before, after)
    if differences is None:
        yield path, (before, after)
        return
    for part, old, new in differences:
        yield from _leaves((path + part).removeprefix("."), old, new)


def _differences(before: Any, after: Any) -> Iterable[_Difference] | None:
    """Return the differing children of two trees, or None if the values are leaves.

    An empty container that appears or disappears is a leaf; otherwise it would be no change.
    """
    if not before and not after:
        return None
    if _is_absent_or(Mapping, before) and _is_absent_or(Mapping, after):
        return _differing(before or {}, after or {}, _by_key)
    if _is_absent_or(list, before) and _is_absent_or(list, after):
        for identity in _IDENTITIES:
            old, new = _by_identity(before or [], identity), _by_identity(after or [], identity)
            if old is not None and new is not None:
                return _differing(old, new, str)
    return None


def _is_absent_or(kind: type, value: Any) -> bool:
    return value is None or isinstance(value, kind)


def _differing(before: _Tree, after: _Tree, name: Callable[[str], str]) -> Iterator[_Difference]:
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if old != new:
            yield name(key), old, new


def _by_key(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]"


def _by_identity(items: Sequence[Any], identity: Sequence[str]) -> dict[str, Any] | None:
    """Return the items by identity; None if a field is missing or an identity is not unique."""
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
