"""The causes of an Invalid status: what is wrong with one field, in a real server's words."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

Cause = dict[str, Any]
"""`reason`, `message` and `field`."""

OMITTED: Final = object()
"""A value that the message does not show."""


def cause(reason: str, field: str, message: str) -> Cause:
    return {"reason": reason, "message": message, "field": field}


def format_value(value: Any) -> str:
    return json.dumps(_integral(value), ensure_ascii=False, separators=(",", ":"))


def _integral(value: Any) -> Any:
    """Return the value with whole floats as integers and with sorted keys."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: _integral(entries[name]) for name in sorted(entries)}
    if isinstance(value, list):
        return [_integral(item) for item in cast("list[Any]", value)]
    return value


def _shown(words: str, value: Any) -> str:
    return words if value is OMITTED else f"{words}: {format_value(value)}"


def invalid(field: str, value: Any, why: str) -> Cause:
    return cause("FieldValueInvalid", field, f"{_shown('Invalid value', value)}: {why}")


def wrong_type(field: str, value: Any, why: str) -> Cause:
    return cause("FieldValueTypeInvalid", field, f"{_shown('Invalid value', value)}: {why}")


def required(field: str, why: str = "") -> Cause:
    return cause("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")


def forbidden(field: str, why: str) -> Cause:
    return cause("FieldValueForbidden", field, f"Forbidden: {why}")


def unsupported(field: str, value: Any, values: Sequence[Any]) -> Cause:
    names = [v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) for v in values]
    supported = ", ".join(json.dumps(name, ensure_ascii=False) for name in names)
    message = f"{_shown('Unsupported value', value)}: supported values: {supported}"
    return cause("FieldValueNotSupported", field, message)


def too_long(field: str, limit: int) -> Cause:
    unit = "byte" if limit == 1 else "bytes"
    return cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} {unit}")


def too_many(field: str, count: int, limit: int) -> Cause:
    unit = "item" if limit == 1 else "items"
    return cause("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} {unit}")


def duplicate(field: str, value: Any) -> Cause:
    return cause("FieldValueDuplicate", field, _shown("Duplicate value", value))
