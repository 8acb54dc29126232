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


def same(first: Any, second: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    if first is second:
        return True
    if first != second:
        return False
    if isinstance(first, dict):
        return all(same(value, second[key]) for key, value in as_map(first).items())
    if isinstance(first, list):
        return all(map(same, cast("list[Any]", first), second))
    return isinstance(first, bool) == isinstance(second, bool)


def unchanged(before: Any, after: Any, shape: MergeShape) -> bool:
    return before == after and (shape.typed or same(before, after))


def _walk(before: Any, after: Any, shape: MergeShape) -> _Pair:
    if before is after or (shape.typed and before == after):
        return _NOTHING
    if shape.sort == "any" and MISSING not in (before, after) and None not in (before, after):
        sorts = sort_of(before, shape), sort_of(after, shape)
        if sorts[0] != sorts[1]:
            return _compare_sorts(before, after, shape)
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


def _compare_sorts(before: Any, after: Any, shape: MergeShape) -> _Pair:
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
        old_items, new_items = old.get(key, []), new.get(key, [])
        if len(old_items) < 2 and len(new_items) < 2:
            pair = _walk(
                old_items[0] if old_items else MISSING,
                new_items[0] if new_items else MISSING,
                element,
            )
        else:
            pair = _repeated(old_items, new_items, element)
        _keep(key, pair, changed, removed)
    return changed, removed


def _repeated(old_items: list[Any], new_items: list[Any], element: MergeShape) -> _Pair:
    """Compare items with the same key as one value; walk a single item."""
    if len(old_items) > 1 and len(new_items) > 1:
        return _NOTHING if same(old_items, new_items) else ({}, None)
    if len(old_items) > 1:
        return (_walk(MISSING, new_items[0], element)[0] if new_items else None), {}
    return {}, (_walk(old_items[0], MISSING, element)[1] if old_items else None)


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
    """Merge lists: shared items in the order of the desired list, others in their old position."""
    old = cast("list[Any]", live) if isinstance(live, list) else []
    new = cast("list[Any]", desired) if isinstance(desired, list) else []
    old_keys = [item_key(item, shape) for item in old]
    new_keys = [item_key(item, shape) for item in new]
    before, after = items_by_key(live, shape), items_by_key(desired, shape)
    element = shape.element or MergeShape()

    def merged_item(key: str) -> Any:
        old_items = before.get(key, [])
        # Items that share a key count as null.
        old_item = MISSING if not old_items else old_items[0] if len(old_items) == 1 else None
        return _merge(old_item, after[key][0], element)

    result: list[Any] = []
    for source, index in _merge_order(old_keys, new_keys):
        result.append(old[index] if source == "old" else merged_item(new_keys[index]))
    return result


def _merge_order(old: list[str], new: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the indices of the merged list: `old` items, and `new` items to be merged."""
    in_old, in_new = set(old), set(new)
    shared = iter([key for key in new if key in in_old])
    next_shared = next(shared, None)
    done: set[str] = set()
    old_index = new_index = 0
    while old_index < len(old) or new_index < len(new):
        if old_index < len(old) and new_index < len(new):
            if old[old_index] == new[new_index]:
                done.add(old[old_index])
                yield "new", new_index
                old_index, new_index = old_index + 1, new_index + 1
                next_shared = next(shared, None)
                continue
            if (
                old[old_index] in in_new
                and next_shared is not None
                and next_shared != old[old_index]
            ):
                old_index += 1
                continue
        if old_index < len(old):
            if old[old_index] not in in_new:
                yield "old", old_index
                old_index += 1
                continue
            if old[old_index] in done:
                old_index += 1
        if new_index < len(new):
            done.add(new[new_index])
            yield "new", new_index
            if new[new_index] == next_shared:
                next_shared = next(shared, None)
            new_index += 1


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
    items: list[Any] = []
    for item in cast("list[Any]", value):
        entry = fields.get(item_key(item, shape))
        if entry is None:
            items.append(item)
        elif not member(entry):
            items.append(_without(item, entry, shape.element or MergeShape()))
    return items or None


def _without_map(value: dict[str, Any], fields: Fields, shape: MergeShape) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, entry_value in value.items():
        entry = fields.get(f"f:{name}")
        if entry is None:
            entries[name] = entry_value
        elif not member(entry):
            entries[name] = _without(entry_value, entry, declared(shape, name))
    return entries


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
        for name, entry in as_map(value).items():
            below = shape.child(name)
            if below is None:
                yield f"{path}.{name}: field not declared in schema"
            else:
                yield from _misfits(entry, below, f"{path}.{name}")
    else:
        yield from _misfit_items(cast("list[Any]", value), shape, path)


def _misfit_items(items: list[Any], shape: MergeShape, path: str) -> Iterator[str]:
    seen: set[str] = set()
    keyed = not shape.atomic and shape.sort == "list"
    for index, item in enumerate(items):
        key = f"i:{index}"
        if keyed:
            try:
                key = item_key(item, shape)
            except ShapeMismatch as error:
                yield f"{path}: element {index}: {error}"
                return
            if key in seen:
                yield f"{path}: duplicate entries for key {describe_step(key)}"
            seen.add(key)
        if shape.element is not None:
            yield from _misfits(item, shape.element, f"{path}{describe_step(key)}")
