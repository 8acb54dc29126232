"""Errors of the simulated API server, with code, reason, message and details of a real one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

Cause = dict[str, Any]
"""`reason`, `message` and `field`."""


class StatusError(Exception):
    """A request that is refused with a Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Mapping[str, Any]] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.causes = [dict(cause) for cause in causes]
        self.retry_after = retry_after

    def status(self) -> dict[str, Any]:
        details = dict(self.details or {})
        if self.causes:
            details["causes"] = self.causes
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": details} if details or self.details is not None else {}),
            "code": self.code,
        }


class PathNotFound(StatusError):
    """A path outside the API, which is refused in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


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
