"""JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386), and the strategic merge patch.

Of JSON Patch only add, remove, replace and test are simulated, of the directives of a strategic
patch only `$patch: delete`.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from libs.testing.apiserver.objects.shapes import ANYTHING, MergeShape
from libs.testing.apiserver.status import StatusError

_PATCH: Final = "$patch"


def json_patch(obj: dict[str, Any], operations: Any) -> dict[str, Any]:
    """Return the object after all operations; the given object is changed."""
    if not isinstance(operations, list):
        raise StatusError(400, "BadRequest", "error decoding patch: it is not a list of operations")
    for operation in cast("list[dict[str, Any]]", operations):
        try:
            _apply_operation(obj, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", message, details={}) from error
    return obj


def _apply_operation(obj: Any, operation: Mapping[str, Any]) -> None:
    """Apply one operation; any error in looking up its path makes it inapplicable."""
    steps = [
        step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
    ]
    for step in steps[:-1]:
        obj = cast("list[Any]", obj)[int(step)] if isinstance(obj, list) else obj[step]
    container, last = obj, steps[-1]
    at: Any = last
    if isinstance(container, list):
        items = cast("list[Any]", container)
        at = len(items) if last == "-" else int(last)
    match operation["op"]:
        case "test" if container[at] == operation.get("value"):
            return
        case "add" if isinstance(container, list):
            cast("list[Any]", container).insert(at, operation.get("value"))
        case "add" | "replace":
            container[at] = operation.get("value")
        case "remove":
            del container[at]
        case op:
            raise ValueError(f"cannot apply {op!r} at {operation['path']!r}")


def merge_patch(obj: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """Return the object with the entries of the patch; null removes an entry."""
    if not isinstance(patch, dict):
        raise StatusError(400, "BadRequest", "error decoding patch: it is not an object")
    result = dict(obj)
    for name, value in cast("dict[str, Any]", patch).items():
        current = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(current, dict) and isinstance(value, dict):
            result[name] = merge_patch(cast("dict[str, Any]", current), value)
        else:
            result[name] = value if isinstance(current, dict) else _without_nulls(value)
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        return {name: _without_nulls(entry) for name, entry in entries if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in cast("list[Any]", value)]
    return value


def strategic_patch(obj: Mapping[str, Any], patch: Any, shape: MergeShape) -> dict[str, Any]:
    """Return the object with the entries of the patch, lists merged as the shape says."""
    if not isinstance(patch, dict):
        raise StatusError(400, "BadRequest", "invalid JSON document")
    result = dict(obj)
    for name, value in cast("dict[str, Any]", patch).items():
        current = result.get(name)
        if name.startswith("$"):
            raise _not_simulated(name)
        if value is None:
            result.pop(name, None)
            continue
        below = shape.child(name)
        if below is None:
            message = f"unable to find api field in struct for the json field {name!r}"
            raise StatusError(500, "", message)
        replaces = "replace" in below.strategies
        if isinstance(current, dict) and isinstance(value, dict) and not replaces:
            result[name] = strategic_patch(cast("dict[str, Any]", current), value, below)
        elif isinstance(value, list) and "merge" in below.strategies:
            result[name] = _merged_list(
                cast("list[Any]", current or []), cast("list[Any]", value), below
            )
        else:
            result[name] = value if isinstance(current, dict) else _without_nulls(value)
    return result


def _merged_list(items: list[Any], patch: list[Any], shape: MergeShape) -> list[Any]:
    key = shape.merge_key
    if not key:
        merged = [*items, *(each for each in patch if each not in items)]
        return _in_order(merged, patch, items)
    for change in patch:
        if key not in change:
            message = f"map: {change} does not contain declared merge key: {key}"
            raise StatusError(500, "", message)
        if change.get(_PATCH, "delete") != "delete":
            raise _not_simulated(f"{_PATCH}: {change[_PATCH]}")
    deleted = [change[key] for change in patch if _PATCH in change]
    changes = {change[key]: change for change in patch if _PATCH not in change}
    current = {item.get(key): item for item in items if item.get(key) not in deleted}
    merged = {
        **current,
        **{
            value: strategic_patch(current[value], change, shape.element or ANYTHING)
            if value in current
            else _without_nulls(change)
            for value, change in changes.items()
        },
    }
    return [merged[value] for value in _in_order([*merged], [*changes], [*current])]


def _in_order(merged: list[Any], patch: list[Any], items: list[Any]) -> list[Any]:
    """Put patched values in the patch's order, and others before the next that they preceded."""

    def rank(order: list[Any], value: Any) -> int:
        return order.index(value) if value in order else -1

    patched = sorted((v for v in merged if v in patch), key=patch.index)
    others = sorted((v for v in merged if v not in patch), key=lambda v: rank(items, v))
    result: list[Any] = []
    while patched and others:
        other_first = 0 <= rank(items, others[0]) < rank(items, patched[0])
        result.append(others.pop(0) if other_first else patched.pop(0))
    return result + patched + others


def _not_simulated(directive: str) -> StatusError:
    message = f"this simulated server does not support the directive {directive}"
    return StatusError(501, "NotImplemented", message)
