"""Compare and merge versions of an object, as sets of fields. Equal parts are not walked."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from libs.testing.apiserver.objects.fields import (
    MISSING,
    Fields,
    ShapeMismatch,
    as_map,
    declared,
    describe_step,
    is_leaf,
    item_key,
    items_by_key,
    member,
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
    changed, removed = _compare_maps(before, after, shape)
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
        changed, removed = _compare_maps(as_map(before), as_map(after), shape)
    else:
        changed, removed = _compare_lists(before, after, shape)
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
    changed, _ = _compare_maps({}, as_map(after), shape)
    _, removed = _compare_maps(as_map(before), {}, shape)
    whole = not (isinstance(before, dict) and isinstance(after, dict))
    return {".": {}, **changed} if changed and whole else changed, removed or None


def _compare_maps(
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


def _compare_lists(before: Any, after: Any, shape: MergeShape) -> tuple[Fields, Fields]:
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


def merged(live: dict[str, Any], desired: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    """Return the live object with all fields of the desired one."""
    return _maps(live, desired, shape)


def _merge(live: Any, desired: Any, shape: MergeShape) -> Any:
    if desired is MISSING or live is MISSING:
        return live if desired is MISSING else desired
    sort = sort_of(desired if desired is not None else live, shape)
    if is_leaf(shape, sort, live, desired):
        return desired
    if sort == "map":
        return _maps(as_map(live), as_map(desired), shape)
    return _lists(live, desired, shape)


def _maps(live: dict[str, Any], desired: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    entries = {
        name: _merge(live.get(name, MISSING), value, declared(shape, name))
        for name, value in desired.items()
    }
    return {**live, **entries}


def _lists(live: Any, desired: Any, shape: MergeShape) -> list[Any]:
    """Merge lists: shared items in the order of the desired list, others where they were."""
    old = cast("list[Any]", live) if isinstance(live, list) else []
    new = cast("list[Any]", desired) if isinstance(desired, list) else []
    old_keys = [item_key(item, shape) for item in old]
    new_keys = [item_key(item, shape) for item in new]
    before, after = items_by_key(live, shape), items_by_key(desired, shape)
    element = shape.element or MergeShape()

    def merged_item(key: str) -> Any:
        were = before.get(key, [])
        # Items that share a key count as null.
        had = MISSING if not were else were[0] if len(were) == 1 else None
        return _merge(had, after[key][0], element)

    result: list[Any] = []
    for which, at in _woven(old_keys, new_keys):
        result.append(old[at] if which == "old" else merged_item(new_keys[at]))
    return result


def _woven(old: list[str], new: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the items in order: `old` ones alone, or `new` ones, merged with their old one."""
    was, will = set(old), set(new)
    shared = iter([key for key in new if key in was])
    next_shared = next(shared, None)
    done: set[str] = set()
    at = upto = 0
    while at < len(old) or upto < len(new):
        if at < len(old) and upto < len(new):
            if old[at] == new[upto]:
                done.add(old[at])
                yield "new", upto
                at, upto = at + 1, upto + 1
                next_shared = next(shared, None)
                continue
            if old[at] in will and next_shared is not None and next_shared != old[at]:
                at += 1
                continue
        if at < len(old):
            if old[at] not in will:
                yield "old", at
                at += 1
                continue
            if old[at] in done:
                at += 1
        if upto < len(new):
            done.add(new[upto])
            yield "new", upto
            if new[upto] == next_shared:
                next_shared = next(shared, None)
            upto += 1


def without(obj: dict[str, Any], fields: Fields, shape: MergeShape) -> dict[str, Any]:
    """Return the object without these fields."""
    if not fields:
        return obj
    return cast("dict[str, Any] | None", _without(obj, fields, shape)) or {}


def _without(value: Any, fields: Fields, shape: MergeShape) -> Any:
    sort = sort_of(value, shape)
    if sort == "scalar":
        return value
    if is_leaf(shape, sort, value) or not isinstance(value, dict | list):
        return None
    if sort == "map":
        return _without_map(as_map(value), fields, shape) or None
    left: list[Any] = []
    for item in cast("list[Any]", value):
        entry = fields.get(item_key(item, shape))
        if entry is None:
            left.append(item)
        elif not member(entry):
            left.append(_without(item, entry, shape.element or MergeShape()))
    return left or None


def _without_map(value: dict[str, Any], fields: Fields, shape: MergeShape) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for name, given in value.items():
        entry = fields.get(f"f:{name}")
        if entry is None:
            left[name] = given
        elif not member(entry):
            left[name] = _without(given, entry, declared(shape, name))
    return left


def misfits(obj: dict[str, Any], shape: MergeShape) -> list[str]:
    """Return where a desired object does not match its shape."""
    return list(_misfits(obj, shape, ""))


def _misfits(value: Any, shape: MergeShape, path: str) -> Iterator[str]:
    sort = sort_of(value, shape)
    if value is None or sort == "scalar" or (shape.sort == "any" and shape.atomic):
        return
    if not isinstance(value, dict if sort == "map" else list):
        yield f"{path}: expected {sort}, got {value!r}".removeprefix(": ")
    elif sort == "map":
        for name, given in as_map(value).items():
            below = shape.child(name)
            if below is None:
                yield f"{path}.{name}: field not declared in schema"
            else:
                yield from _misfits(given, below, f"{path}.{name}")
    else:
        yield from _misfit_items(cast("list[Any]", value), shape, path)


def _misfit_items(items: list[Any], shape: MergeShape, path: str) -> Iterator[str]:
    seen: set[str] = set()
    keyed = not shape.atomic and shape.sort == "list"
    for at, item in enumerate(items):
        key = f"i:{at}"
        if keyed:
            try:
                key = item_key(item, shape)
            except ShapeMismatch as error:
                yield f"{path}: element {at}: {error}"
                return
            if key in seen:
                yield f"{path}: duplicate entries for key {describe_step(key)}"
            seen.add(key)
        if shape.element is not None:
            yield from _misfits(item, shape.element, f"{path}{describe_step(key)}")
