"""Comparison of two versions of an object, as sets of fields. Equal parts are not walked."""

from dataclasses import dataclass
from typing import Any, Final, cast

from libs.testing.apiserver.objects.fields import (
    MISSING,
    Fields,
    as_map,
    declared,
    is_leaf,
    items_by_key,
    sort_of,
)
from libs.testing.apiserver.objects.shapes import MergeShape


@dataclass(frozen=True)
class Comparison:
    """The fields that were added or changed, and those that were removed."""

    changed: Fields
    removed: Fields


_Pair = tuple[Fields | None, Fields | None]
_NOTHING: Final[_Pair] = (None, None)


def compare(before: dict[str, Any], after: dict[str, Any], shape: MergeShape) -> Comparison:
    changed, removed = _maps(before, after, shape)
    return Comparison(changed, removed)


def same(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    if one is other:
        return True
    if one != other:
        return False
    if isinstance(one, dict):
        return all(same(value, other[key]) for key, value in as_map(one).items())
    if isinstance(one, list):
        return all(map(same, cast("list[Any]", one), other))
    return isinstance(one, bool) == isinstance(other, bool)


def unchanged(before: Any, after: Any, shape: MergeShape) -> bool:
    return before == after and (shape.typed or same(before, after))


def _walk(before: Any, after: Any, shape: MergeShape) -> _Pair:
    if before is after or (shape.typed and before == after):
        return _NOTHING
    if shape.sort == "any" and MISSING not in (before, after) and None not in (before, after):
        sorts = sort_of(before, shape), sort_of(after, shape)
        if sorts[0] != sorts[1]:
            return _other_sort(before, after, shape)
    sort = sort_of(after if after is not None and after is not MISSING else before, shape)
    if is_leaf(shape, sort, before, after):
        return _leaf(before, after)
    if sort == "map":
        changed, removed = _maps(as_map(before), as_map(after), shape)
    else:
        changed, removed = _lists(before, after, shape)
    if before is MISSING:
        return {".": {}, **changed} if changed else {}, removed or None
    if after is MISSING:
        return changed or None, {".": {}, **removed} if removed else {}
    return changed or None, removed or None


def _leaf(before: Any, after: Any) -> _Pair:
    if after is MISSING:
        return None, {}
    if before is MISSING or not same(before, after):
        return {}, None
    return _NOTHING


def _other_sort(before: Any, after: Any, shape: MergeShape) -> _Pair:
    changed, _ = _maps({}, as_map(after), shape)
    _, removed = _maps(as_map(before), {}, shape)
    whole = not (isinstance(before, dict) and isinstance(after, dict))
    return {".": {}, **changed} if changed and whole else changed, removed or None


def _maps(
    before: dict[str, Any], after: dict[str, Any], shape: MergeShape
) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    for name, value in after.items():
        earlier = before.get(name, MISSING)
        if earlier is not value:
            _keep(f"f:{name}", _walk(earlier, value, declared(shape, name)), changed, removed)
    for name, value in before.items():
        if name not in after:
            _keep(f"f:{name}", _walk(value, MISSING, declared(shape, name)), changed, removed)
    return changed, removed


def _lists(before: Any, after: Any, shape: MergeShape) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    element = shape.element or MergeShape()
    old, new = items_by_key(before, shape), items_by_key(after, shape)
    for key in {**old, **new}:
        were, are = old.get(key, []), new.get(key, [])
        if len(were) < 2 and len(are) < 2:
            pair = _walk(were[0] if were else MISSING, are[0] if are else MISSING, element)
        else:
            pair = _repeated(were, are, element)
        _keep(key, pair, changed, removed)
    return changed, removed


def _repeated(were: list[Any], are: list[Any], element: MergeShape) -> _Pair:
    """Compare items that share a key as one value, and walk one that is alone."""
    if len(were) > 1 and len(are) > 1:
        return _NOTHING if same(were, are) else ({}, None)
    if len(were) > 1:
        return (_walk(MISSING, are[0], element)[0] if are else None), {}
    return {}, (_walk(were[0], MISSING, element)[1] if were else None)


def _keep(key: str, pair: _Pair, changed: Fields, removed: Fields) -> None:
    if pair[0] is not None:
        changed[key] = pair[0]
    if pair[1] is not None:
        removed[key] = pair[1]
