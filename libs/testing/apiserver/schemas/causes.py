"""What is wrong with one field, in the words that a server has for it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

Cause = Mapping[str, Any]
"""`reason`, `message` and `field`."""

OMITTED: Final = object()
"""A value that a message does not show."""


def _cause(reason: str, message: str, field: str) -> Cause:
    return {"reason": reason, "message": message, "field": field}


def format_value(value: Any) -> str:
    """The value as a message has it."""
    return json.dumps(_whole(value), ensure_ascii=False, separators=(",", ":"))


def _whole(value: Any) -> Any:
    """With numbers that have no fraction as integers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: _whole(entries[name]) for name in sorted(entries)}
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    return value


def _invalid(reason: str, field: str, value: Any, detail: str) -> Cause:
    words = "Invalid value" if value is OMITTED else f"Invalid value: {format_value(value)}"
    return _cause(reason, f"{words}: {detail}", field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """A value that breaks a rule."""
    return _invalid("FieldValueInvalid", field, value, detail)


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    """A value of another type."""
    return _invalid("FieldValueTypeInvalid", field, value, detail)


def required(field: str, detail: str = "") -> Cause:
    """A value that is not there."""
    return _cause("FieldValueRequired", f"Required value{f': {detail}' if detail else ''}", field)


def forbidden(field: str, detail: str) -> Cause:
    """A value that must not be there."""
    return _cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def unsupported(field: str, value: Any, values: Sequence[Any]) -> Cause:
    """A value that is none of those that there are."""
    names = [v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) for v in values]
    listed = ", ".join(json.dumps(name, ensure_ascii=False) for name in names)
    return _cause(
        "FieldValueNotSupported",
        f"Unsupported value: {format_value(value)}: supported values: {listed}",
        field,
    )


def too_long(field: str, most: int) -> Cause:
    """A text with too many characters."""
    unit = "byte" if most == 1 else "bytes"
    return _cause("FieldValueTooLong", f"Too long: may not be more than {most} {unit}", field)


def too_many(field: str, count: int, most: int) -> Cause:
    """A list or a map with too many entries."""
    unit = "item" if most == 1 else "items"
    return _cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} {unit}", field)


def duplicate(field: str, value: Any) -> Cause:
    """An item that is there twice."""
    words = "Duplicate value" if value is OMITTED else f"Duplicate value: {format_value(value)}"
    return _cause("FieldValueDuplicate", words, field)
