"""Decode the values of one object field by field, with a finding for each that does not fit."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from libs.contracts.words import excerpt
from libs.policy.findings import REMEDY_WITHOUT_EFFECT, Finding, Severity, quote_value
from libs.policy.shapes import (
    About,
    Field,
    JsonType,
    Shape,
    is_int_or_percent,
    reason_without_effect,
)

INVALID: Final = object()
"""Returned instead of a value that does not fit."""

_TYPES: Final[Mapping[JsonType, tuple[Any, str, str]]] = {
    JsonType.BOOLEAN: (bool, "is not true or false", "write true or false, without quotes"),
    JsonType.INTEGER: (int, "is not a whole number", "write a whole number, without quotes"),
    JsonType.NUMBER: ((int, float), "is not a number", "write a number, without quotes"),
    JsonType.TEXT: (str, "is not a string", "write a string; quote it if it looks like a number"),
    JsonType.INT_OR_STRING: (
        (int, str),
        "is neither a number nor a string",
        "write a number or a string",
    ),
    JsonType.LIST: ((list, tuple), "is not a list", "write a list"),
    JsonType.MAP: (Mapping, "is not an object", "write keys with their values"),
    JsonType.OBJECT: (Mapping, "is not an object", "write fields with their values"),
    JsonType.FREE_FORM: (Mapping, "is not an object", "write fields with their values"),
}
"""By type: the Python type, and problem and remedy of other values."""


_TEXT: Final = Shape(type=JsonType.TEXT)


class PolicyDecoder:
    """Decode the values of one object and collect the findings about them."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def decode_struct(self, value: Any, shape: Shape, path: str, reason: str | None = "") -> Any:
        """Decode an object into the struct of `shape`, or return `INVALID`.

        `reason` is the reason why the object has no effect here; with None, no notes about fields
        without effect are added.
        """
        if not isinstance(value, Mapping):
            return self._type_error(value, shape, path)
        given = cast("Mapping[Any, Any]", value)
        known = {field.name: field for field in shape.fields}
        self._unknown(given, known, path)
        decoded: dict[str, Any] = {}
        for field in shape.fields:
            field_path = f"{path}.{field.name}"
            field_value = given.get(field.name)
            target = known[field.about.alias] if field.about.alias else field
            if field_value is None and field.about.required and not field.about.stored:
                self.add_finding(field_path, "", "is required", "set it")
            if field_value is None or (
                target is not field and not self._alias(field, given, field_path)
            ):
                continue
            decoded_value = self._field(field_value, target, field_path, reason)
            if decoded_value is not INVALID:
                decoded[target.attribute] = decoded_value
        if any(
            field.default is msgspec.NODEFAULT and field.attribute not in decoded
            for field in shape.fields
        ):
            return INVALID
        return shape.python_type(**decoded)

    def add_finding(
        self,
        field: str,
        value: str,
        problem: str,
        remedy: str = "",
        severity: Severity = Severity.ERROR,
    ) -> None:
        self.findings.append(
            Finding(field=field, value=value, problem=problem, remedy=remedy, severity=severity)
        )

    def _field(self, value: Any, field: Field, path: str, reason: str | None) -> Any:
        if reason is not None:
            reason = reason_without_effect(field.about, reason)
        if field.shape.type is JsonType.OBJECT:
            return self.decode_struct(value, field.shape, path, reason)
        decoded = self._value(value, field.shape, field.about, path)
        if decoded is INVALID or reason is None:
            return decoded
        if field.about.unsupported and reason and decoded is True:
            problem = f"is enabled, but {reason}"
            self.add_finding(path, "true", problem, "set it to false", Severity.WARNING)
        elif decoded != field.default and (reason or field.about.deprecated):
            problem = "is deprecated" if field.about.deprecated else "is accepted"
            problem += f" and has no effect here, because {reason}" if reason else ""
            remedy = field.about.deprecated or REMEDY_WITHOUT_EFFECT
            self.add_finding(path, quote_value(value), problem, remedy, Severity.NOTE)
        return decoded

    def _alias(self, field: Field, given: Mapping[Any, Any], path: str) -> bool:
        """Report an old spelling and return whether its value is used.

        It is not used where the new spelling is set too.
        """
        name, value = field.about.alias, quote_value(given[field.name])
        is_used = given.get(name) is None
        problem = f"is an old spelling of {name}"
        problem += "" if is_used else ", which is also set and takes precedence"
        self.add_finding(
            path, value, problem, f"write {name}" if is_used else "remove it", Severity.WARNING
        )
        return is_used

    def _unknown(self, given: Mapping[Any, Any], known: Mapping[str, Field], path: str) -> None:
        for name, value in given.items():
            if name not in known:
                self.add_finding(
                    f"{path}.{excerpt(str(name))}",
                    quote_value(value),
                    "is not a field of this kind",
                    "check the spelling, or remove it",
                    Severity.WARNING,
                )

    def _value(self, value: Any, shape: Shape, about: About, path: str) -> Any:
        if shape.type is JsonType.OBJECT:
            return self.decode_struct(value, shape, path, None)
        if shape.type is JsonType.INTEGER:
            value = _whole_number(value)
        is_boolean, wants_boolean = isinstance(value, bool), shape.type is JsonType.BOOLEAN
        if is_boolean != wants_boolean or not isinstance(value, _TYPES[shape.type][0]):
            return self._type_error(value, shape, path)
        match shape.type:
            case JsonType.INTEGER:
                return self._integer(value, about, path)
            case JsonType.NUMBER:
                return self._number(value, shape, path)
            case JsonType.TEXT:
                return self._text(value, shape, about, path)
            case JsonType.INT_OR_STRING:
                return self._int_or_string(value, shape, about, path)
            case JsonType.LIST:
                return self._list(value, shape, about, path)
            case JsonType.MAP:
                return self._map(value, shape, about, path)
            case JsonType.FREE_FORM:
                return self._free_form(value, path)
            case _:
                return value

    def reject(self, value: Any, path: str, problem: str, remedy: str) -> Any:
        """Add an error about a value, and return `INVALID`."""
        self.add_finding(path, quote_value(value), problem, remedy)
        return INVALID

    def _type_error(self, value: Any, shape: Shape, path: str) -> Any:
        _, problem, remedy = _TYPES[shape.type]
        return self.reject(value, path, problem, remedy)

    def _integer(self, value: int, about: About, path: str) -> Any:
        bound = 2 ** (about.bits - 1)
        minimum = -bound if about.minimum is None else about.minimum
        maximum = bound - 1 if about.maximum is None else about.maximum
        if minimum <= value <= maximum:
            return value
        problem = f"is not from {minimum} to {maximum}"
        return self.reject(value, path, problem, "write such a number")

    def _number(self, value: float, shape: Shape, path: str) -> Any:
        try:
            return float(value)
        except OverflowError:
            return self._type_error(value, shape, path)

    def _text(self, value: str, shape: Shape, about: About, path: str) -> Any:
        if not _is_valid_unicode(value):
            return self._type_error(value, _TEXT, path)
        if shape.choices and value not in shape.choices:
            choices = ", ".join(f'"{choice}"' for choice in shape.choices)
            return self.reject(value, path, "is not an allowed value", f"write one of {choices}")
        if about.pattern and value and not re.search(about.pattern, value):
            remedy = f"it must match {about.pattern}"
            return self.reject(value, path, "has the wrong format", remedy)
        if about.int_or_percent and value and not is_int_or_percent(value):
            return self._not_int_or_percent(value, path)
        return shape.python_type(value) if shape.python_type else value

    def _int_or_string(self, value: int | str, shape: Shape, about: About, path: str) -> Any:
        if isinstance(value, str) and value:
            return self._text(value, shape, about, path)
        fits = isinstance(value, int) and -(2**31) <= value < 2**31
        if fits and (not about.int_or_percent or is_int_or_percent(value)):
            return value
        return self._not_int_or_percent(value, path)

    def _not_int_or_percent(self, value: Any, path: str) -> Any:
        problem = "is neither a number from 0 up nor a percentage from 0% to 100%"
        remedy = 'write a number like 2, or a string like "25%"'
        return self.reject(value, path, problem, remedy)

    def _list(self, value: Iterable[Any], shape: Shape, about: About, path: str) -> Any:
        items = cast("Shape", shape.items)
        decoded = (
            self._value(item, items, about, f"{path}[{index}]") for index, item in enumerate(value)
        )
        return tuple(item for item in decoded if item is not INVALID)

    def _map(self, value: Mapping[Any, Any], shape: Shape, about: About, path: str) -> Any:
        items = cast("Shape", shape.items)
        decoded: dict[str, Any] = {}
        for key, key_value in value.items():
            entry_path = f"{path}[{excerpt(str(key))}]"
            if not isinstance(key, str) or not _is_valid_unicode(key):
                problem = "has a key that is not a string"
                self.reject(key_value, entry_path, problem, "use a string as the key")
                continue
            decoded_value = self._value(key_value, items, about, entry_path)
            if decoded_value is not INVALID:
                decoded[key] = decoded_value
        return decoded

    def _free_form(self, value: Any, path: str) -> Any:
        try:
            return msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError):
            remedy = "use strings, numbers, lists and objects"
            self.add_finding(path, "", "cannot be written as JSON", remedy)
            return INVALID


def _whole_number(value: Any) -> Any:
    """Return a float without a fraction as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_valid_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
