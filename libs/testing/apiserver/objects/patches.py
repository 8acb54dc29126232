"""The patches that need no shape: JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386).

Knows nothing of who sends them. Where the library inside a real server differs from the words of an
RFC, it is the server that is followed: a replace of an entry that a map lacks adds it, negative
indexes count from the end.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from libs.testing.apiserver.objects.comparison import same
from libs.testing.apiserver.status import StatusError

_MOST_OPERATIONS: Final = 10_000


class _Inapplicable(Exception):
    """A path that is not there, or a test that failed."""


def json_patch(obj: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    """The object after every operation, in turn."""
    _check_operations(operations)
    if len(operations) > _MOST_OPERATIONS:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, "
            f"got {len(operations)}",
        )
    document: Any = obj
    try:
        for operation in operations:
            document = _operate(document, operation)
    except _Inapplicable as error:
        raise StatusError(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            details={},
        ) from error
    if not isinstance(document, dict):
        raise StatusError(422, "Invalid", f"a patched object must be an object, not {document!r}")
    return cast("dict[str, Any]", document)


def _check_operations(operations: Any) -> None:
    if not isinstance(operations, list):
        raise StatusError(400, "BadRequest", "error decoding patch: it is not a list of operations")
    for at, operation in enumerate(cast("list[Any]", operations)):
        names = ("op", "path", "from")
        if not isinstance(operation, dict) or not all(
            isinstance(cast("dict[str, Any]", operation).get(name, ""), str) for name in names
        ):
            raise StatusError(400, "BadRequest", f"error decoding patch: operation {at} is none")


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    kind, path = operation.get("op", ""), operation.get("path")
    if path is None:
        raise _Inapplicable(f"{kind} names no path")
    value = operation.get("value")
    match kind:
        case "add":
            return _at(document, path, _added(value))
        case "remove":
            return _at(document, path, _removed)
        case "replace":
            return value if path == "" else _at(document, path, _replaced(value))
        case "test":
            if not same(_read(document, path), value):
                raise _Inapplicable(f"{path} does not hold the tested value")
            return document
        case "move" | "copy":
            source = operation.get("from")
            if not source:
                raise _Inapplicable(f"{kind} names nothing that can be put elsewhere")
            moved = _read(document, source)
            left = _at(document, source, _removed) if kind == "move" else document
            return _at(left, path, _added(moved))
        case _:
            raise _Inapplicable(f"there is no operation {kind!r}")


_Change = Callable[[Any, str], Any]
"""A container with one of its entries changed, as a new container."""


def _at(document: Any, path: str, change: _Change) -> Any:
    steps = _steps(path)
    if not steps:
        raise _Inapplicable("the whole document cannot be changed like this")
    return _changed(document, steps, change)


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _changed(container: Any, steps: list[str], change: _Change) -> Any:
    if not isinstance(container, dict | list):
        raise _Inapplicable(f"nothing holds {steps[0]!r}")
    if len(steps) == 1:
        return change(container, steps[0])
    below = _changed(_entry(cast("Any", container), steps[0]), steps[1:], change)
    return _replaced(below)(container, steps[0])


def _entry(container: Any, step: str) -> Any:
    if isinstance(container, dict):
        return cast("dict[str, Any]", container).get(step)
    if not isinstance(container, list):
        raise _Inapplicable(f"nothing holds {step!r}")
    items = cast("list[Any]", container)
    return items[_index(step, len(items) - 1)]


def _read(document: Any, path: str) -> Any:
    for step in _steps(path):
        document = _entry(document, step)
    return document


def _index(step: str, last: int) -> int:
    try:
        at = int(step)
    except ValueError as error:
        raise _Inapplicable(f"{step!r} is no index") from error
    at = at + last + 1 if at < 0 else at
    if not 0 <= at <= last:
        raise _Inapplicable(f"there is no index {step}")
    return at


def _added(value: Any) -> _Change:
    def change(container: Any, step: str) -> Any:
        if isinstance(container, dict):
            return {**cast("dict[str, Any]", container), step: value}
        items = list(cast("list[Any]", container))
        items.insert(len(items) if step == "-" else _index(step, len(items)), value)
        return items

    return change


def _replaced(value: Any) -> _Change:
    def change(container: Any, step: str) -> Any:
        if isinstance(container, dict):
            return {**cast("dict[str, Any]", container), step: value}
        items = list(cast("list[Any]", container))
        items[_index(step, len(items) - 1)] = value
        return items

    return change


def _removed(container: Any, step: str) -> Any:
    if isinstance(container, dict):
        entries = dict(cast("dict[str, Any]", container))
        if step not in entries:
            raise _Inapplicable(f"there is no {step!r} to remove")
        del entries[step]
        return entries
    items = list(cast("list[Any]", container))
    del items[_index(step, len(items) - 1)]
    return items


def merge_patch(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The object with the entries of the patch; null takes one out."""
    if not isinstance(cast("Any", patch), dict):
        raise StatusError(400, "BadRequest", "error decoding patch: it is not an object")
    return _merged(obj, patch)


def _merged(obj: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(obj)
    for name, value in patch.items():
        held = result.get(name)
        if value is None:
            result.pop(name, None)
        elif not isinstance(held, dict):
            result[name] = without_nulls(value)
        elif not isinstance(value, dict):
            result[name] = value
        else:
            below = cast("dict[str, Any]", held)
            result[name] = _merged(below, cast("dict[str, Any]", value))
    return result


def without_nulls(value: Any) -> Any:
    """The value less every entry of a map that is null."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        return {name: without_nulls(held) for name, held in entries if held is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in cast("list[Any]", value)]
    return value
