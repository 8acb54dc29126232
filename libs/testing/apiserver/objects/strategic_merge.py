"""The strategic merge patch: lists merge by keys that a kind's shape knows.

Knows nothing of the other patches, nor of who owns what.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from libs.testing.apiserver.objects.patches import without_nulls
from libs.testing.apiserver.objects.shapes import ANYTHING, MergeShape
from libs.testing.apiserver.status import StatusError

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder"
_DELETE: Final = "$deleteFromPrimitiveList"


def strategic_patch(
    obj: dict[str, Any], patch: dict[str, Any], shape: MergeShape
) -> dict[str, Any]:
    """The object after the patch."""
    if not isinstance(cast("Any", patch), dict):
        raise _bad("invalid JSON document")
    return _merged(obj, patch, shape)


def _bad(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def _broken(message: str) -> StatusError:
    """What a server answers to an error that it has no name for."""
    return StatusError(500, "", message)


def _merged(obj: dict[str, Any], patch: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    match patch.get(_PATCH, ""):
        case "":
            pass
        case "replace":
            return {name: value for name, value in patch.items() if name != _PATCH}
        case "delete":
            return {}
        case other:
            raise _broken(f"unknown patch type: {other} in map: {patch}")
    result = _retained(obj, patch)
    ordered = _put_in_order(result, patch, shape)
    for name, value in patch.items():
        if name == _RETAIN or name.startswith(f"{_ORDER}/") or name in ordered:
            continue
        if name.startswith(_DELETE):
            _take_from(result, _listed(name), value, shape)
        elif value is None:
            result.pop(name, None)
        else:
            _put(result, name, value, shape)
    return result


def _retained(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """What stays of the object where the patch says which keys may."""
    if _RETAIN not in patch:
        return dict(obj)
    names = patch[_RETAIN]
    if not isinstance(names, list):
        raise _bad("invalid patch format of retainKeys")
    for name, value in patch.items():
        said = value is not None and name != _RETAIN
        if said and not name.startswith((_DELETE, _ORDER)) and name not in names:
            raise _bad("invalid patch format of retainKeys")
    return {name: value for name, value in obj.items() if name in names}


def _listed(directive: str) -> str:
    kind, slash, name = directive.partition("/")
    if not slash:
        what = "primitive" if kind.startswith(_DELETE) else "setElementOrder"
        raise _bad(f"invalid patch format of {what} list")
    return name


def _put(result: dict[str, Any], name: str, value: Any, shape: MergeShape) -> None:
    held = result.get(name)
    if isinstance(held, dict) and isinstance(value, dict):
        below = _below(shape, name)
        patch = cast("dict[str, Any]", value)
        whole = "replace" in below.strategies
        result[name] = patch if whole else _merged(cast("dict[str, Any]", held), patch, below)
    elif isinstance(held, list) and isinstance(value, list):
        below = _below(shape, name)
        patch, items = cast("list[Any]", value), cast("list[Any]", held)
        result[name] = _merged_list(items, patch, below) if _merges(below) else patch
    else:
        kept = _undirected(without_nulls(value))
        if kept is _GONE:
            result.pop(name, None)
        else:
            result[name] = kept


def _below(shape: MergeShape, name: str) -> MergeShape:
    below = shape.child(name)
    if below is None:
        raise _broken(f"unable to find api field in struct for the json field {name!r}")
    return below


def _merges(shape: MergeShape) -> bool:
    return "merge" in shape.strategies


_GONE: Final = object()


def _undirected(value: Any) -> Any:
    """A value of the patch that meets nothing: what carries a directive is left out."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if _PATCH in entries:
            return _GONE
        kept = {name: _undirected(held) for name, held in entries.items()}
        return {name: held for name, held in kept.items() if held is not _GONE}
    if isinstance(value, list):
        items = [_undirected(item) for item in cast("list[Any]", value)]
        return [item for item in items if item is not _GONE]
    return value


def _take_from(result: dict[str, Any], name: str, value: Any, shape: MergeShape) -> None:
    held = result.get(name)
    if isinstance(held, list) and isinstance(value, list) and (held or value):
        gone, items = cast("list[Any]", value), cast("list[Any]", held)
        _below(shape, name)
        if _hold_maps(items, gone):
            result[name] = _merged_list(items, gone, _below(shape, name))
        else:
            left = [item for item in items if item not in gone]
            result[name] = left


def _hold_maps(*lists: Sequence[Any]) -> bool:
    """Whether these are lists of maps; every item must be of one sort."""
    sorts: set[type[Any]] = {type(item) for items in lists for item in items}
    if list in sorts:
        raise StatusError(
            422, "Invalid", "the server rejected our request due to an error in our request"
        )
    if len(sorts) > 1:
        raise _broken(f"list element types are not identical: {[list(i) for i in lists]}")
    return dict in sorts


def _merged_list(items: list[Any], patch: list[Any], shape: MergeShape) -> list[Any]:
    if not items and not patch:
        return items
    key = shape.merge_key
    if not _hold_maps(items, patch):
        merged = _once([*items, *patch])
        return _in_order(merged, patch, items, "")
    if not key:
        raise _broken("cannot merge lists without merge key for slice")
    base, said = _directed(items, patch, key)
    merged = _merged_items(base, said, shape)
    return _in_order(merged, said, base, key)


def _directed(items: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """The items after the patch's directives, and what of the patch is left to merge."""
    said: list[Any] = []
    replacing = False
    for item in patch:
        match item.get(_PATCH, ""):
            case "":
                said.append(item)
            case "delete":
                value = _value_of(item, key)
                items = [held for held in items if held.get(key) != value or key not in held]
            case "replace":
                replacing = True
            case "merge":
                raise _broken("merging lists cannot yet be specified in the patch")
            case other:
                raise _broken(f"unknown patch type: {other} in map: {item}")
    return (said, []) if replacing else (items, said)


def _value_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict):
        raise _broken(f"expected a map[string]interface {{}}, but received {item!r}")
    if key not in item:
        raise _broken(f"map: {item} does not contain declared merge key: {key}")
    return cast("dict[str, Any]", item)[key]


def _merged_items(items: list[Any], said: list[Any], shape: MergeShape) -> list[Any]:
    merged = list(items)
    key = shape.merge_key
    for item in said:
        value = _value_of(item, key)
        at = _position(merged, value, key)
        if at is None:
            merged.append(item)
        else:
            merged[at] = _merged(merged[at], item, shape.element or ANYTHING)
    return merged


def _position(items: list[Any], value: Any, key: str) -> int | None:
    """Where the item is that has this key, or is this value."""
    for at, item in enumerate(items):
        held = item.get(key) if key else item
        if held == value:
            return at
    return None


def _once(values: list[Any]) -> list[Any]:
    result: list[Any] = []
    for value in values:
        if value not in result:
            result.append(value)
    return result


def _in_order(merged: list[Any], first: list[Any], second: list[Any], key: str) -> list[Any]:
    """Items of the patch in its order, others where they were among those that both have."""

    def rank(order: list[Any], item: Any) -> int:
        at = _position(order, _value_of(item, key) if key else item, key)
        return -1 if at is None else at

    named = sorted((i for i in merged if rank(first, i) >= 0), key=lambda i: rank(first, i))
    others = sorted((i for i in merged if rank(first, i) < 0), key=lambda i: rank(second, i))
    result: list[Any] = []
    while named and others:
        left, right = rank(second, others[0]), rank(second, named[0])
        result.append(others.pop(0) if 0 <= left < right else named.pop(0))
    return result + named + others


def _put_in_order(result: dict[str, Any], patch: dict[str, Any], shape: MergeShape) -> set[str]:
    """Merge the lists whose order the patch gives; the names of those that are done."""
    done: set[str] = set()
    for directive, order in patch.items():
        if not directive.startswith(_ORDER):
            continue
        if not isinstance(order, list):
            raise _broken(f"expected a []interface {{}}, but received {order!r}")
        name = _listed(directive)
        held, said = result.get(name), patch.get(name)
        for value in (held, said):
            if value is not None and not isinstance(value, list):
                raise _broken(f"expected a []interface {{}}, but received {value!r}")
        if name not in result and name not in patch:
            continue
        below = _below(shape, name)
        whole = cast("list[Any]", order)
        _check_order(said or [], whole, below.merge_key)
        result[name] = _ordered(held, said, whole, below)
        done.add(name)
    return done


def _ordered(
    held: list[Any] | None, said: list[Any] | None, order: list[Any], below: MergeShape
) -> list[Any]:
    if not held and not said:
        raise _broken("no elements in any of the given slices")
    if held is None:
        merged = cast("list[Any]", _undirected(said or []))
    elif said is None:
        merged = held
    else:
        merged = _merged_list(held, said, below) if _merges(below) else said
    return _in_order(merged, order, held or [], below.merge_key)


def _check_order(said: list[Any], order: list[Any], key: str) -> None:
    """The items of a patch's list must stand in the order that it gives for them."""
    if not said or not order:
        return
    values: list[Any] = [
        _value_of(item, key) if key else item
        for item in said
        if not isinstance(item, dict) or _PATCH not in item
    ]
    places = iter([_value_of(item, key) if key else item for item in order])
    for value in values:
        if not any(place == value for place in places):
            raise _broken(
                f"The order in patch list:\n{said}\n doesn't match {_ORDER} list:\n{order}\n"
            )
