"""Objects against the OpenAPI part of a schema: types, bounds, formats, what is required.

The words, and which of several alternatives' complaints are told, are those of a real server.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

from libs.testing.apiserver.objects.comparison import same
from libs.testing.apiserver.schemas.causes import (
    Cause,
    format_value,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
    wrong_type,
)
from libs.testing.apiserver.schemas.formats import INTEGERS, TEXTS
from libs.testing.apiserver.schemas.ratchet import GONE, earlier_entry, earlier_item

_EITHER: Final = "x-kubernetes-int-or-string"


@dataclass
class _Found:
    """What is wrong so far, and how much of the schema applied (the best alternative has most)."""

    causes: list[Cause] = field(default_factory=list[Cause])
    applied: int = 0

    def tell(self, *causes: Cause) -> None:
        self.causes += [cause for cause in causes if cause not in self.causes]

    def add(self, other: "_Found") -> None:
        self.tell(*other.causes)
        self.applied += other.applied


def violations(obj: Any, old: Any, root: Mapping[str, Any]) -> list[Cause]:
    """What is wrong; a part that was the same before is not looked at."""
    return _checked(obj, GONE if old is None else old, root, "").causes


def _checked(value: Any, old: Any, schema: Mapping[str, Any], path: str) -> _Found:
    found = _Found()
    if old is not GONE and same(value, old):
        return found
    types = ["integer", "string"] if schema.get(_EITHER) else [schema.get("type", "")]
    right = _check_type(value, types, schema, path, found)
    if value is None:
        _check_enum(value, schema, path, found)
        found.applied += right
        return found
    found.applied += 5 + (right if types != [""] or _format_of(schema) else -1)
    _check_alternatives(value, schema, path, found)
    if isinstance(value, str):
        found.applied += 1
        _check_text(value, schema, path, found)
    elif isinstance(value, list):
        found.applied += 2
        _check_list(cast("list[Any]", value), old, schema, path, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found.applied += 2
        _check_number(value, schema, path, found)
    _check_enum(value, schema, path, found)
    if isinstance(value, dict):
        found.applied += 1
        _check_map(cast("dict[str, Any]", value), old, schema, path, found)
    return found


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _check_type(
    value: Any, types: list[str], schema: Mapping[str, Any], path: str, found: _Found
) -> bool:
    actual, name = _type_of(value), _format_of(schema)
    if value is None and (schema.get("nullable") or types == [""]):
        return True
    # With a format a text and a list are left to that; the real one takes a list for bytes.
    if name and types[0] in ("", "string") and actual in ("string", "array"):
        return True
    whole = isinstance(value, float) and value.is_integer() and "integer" in types
    if actual in types or whole or (actual == "integer" and "number" in types):
        return True
    if name and actual not in ("null", "string", "array"):
        wanted, actual = name, _own_format(value)
        if wanted == actual:
            return True
    elif types == [""]:
        return True
    else:
        wanted = ",".join(types)
    words = f'{path} in body must be of type {wanted}: "{actual}"'
    found.tell(wrong_type(_at(path), actual, words))
    return False


def _own_format(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return "int64" if isinstance(value, int) else "float64"


def _format_of(schema: Mapping[str, Any]) -> str:
    """The format, where it is one that means something for the type."""
    name = str(schema.get("format", ""))
    match schema.get("type", ""):
        case "integer":
            return name if name in INTEGERS else ""
        case "number":
            return name if name in ("float", "double") else ""
        case "" | "string":
            return name if name.replace("-", "") in TEXTS else ""
        case _:
            return ""


def _at(path: str) -> str:
    return path.removeprefix(".") or "<nil>"


def _check_enum(value: Any, schema: Mapping[str, Any], path: str, found: _Found) -> None:
    values = cast("Sequence[Any]", schema.get("enum") or ())
    if values and not any(_is_one(value, one) for one in values if one is not None):
        found.tell(unsupported(_at(path), value, values))


def _is_one(value: Any, one: Any) -> bool:
    if isinstance(value, float) and isinstance(one, int) and not isinstance(one, bool):
        return int(value) == one  # The real one takes the fraction off before it looks.
    return same(value, one)


def _check_text(value: str, schema: Mapping[str, Any], path: str, found: _Found) -> None:
    most, least = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern", "")
    if most is not None and len(value) > most:
        found.tell(too_long(_at(path), most))
    elif least is not None and len(value) < least:
        words = f"{path} in body should be at least {least} chars long"
        found.tell(invalid(_at(path), value, words))
    elif pattern and not compiled(pattern).search(value):
        words = f"{path} in body should match '{pattern}'"
        found.tell(invalid(_at(path), value, words))
    name = _format_of(schema)
    fits = TEXTS.get(name.replace("-", ""))
    if fits is None:
        return
    found.applied += 1
    if not fits(value):
        words = f"{path} in body must be of type {name}: {format_value(value)}"
        found.tell(wrong_type(_at(path), value, words))


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    r"""A server's regular expression: there `$` is the very end, and `\z` too."""
    parts: list[str] = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL)
    ends = {"$": r"\Z", r"\z": r"\Z"}
    return re.compile("".join(ends.get(part, part) for part in parts), re.ASCII)


def _check_number(value: float, schema: Mapping[str, Any], path: str, found: _Found) -> None:
    name = _format_of(schema)
    limit = INTEGERS.get(name, INTEGERS["int64"])
    integer = schema.get("type") == "integer"
    if integer and not (float(value).is_integer() and -limit <= value < limit):
        kind = f"with format {name}" if name else "(default format)"
        words = f"Checked value must be of type integer {kind} in {path}"
        found.tell(invalid("<nil>", "", words))
    found.tell(*_out_of_bounds(value, schema, path))


def _out_of_bounds(value: float, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    step, least, most = (schema.get(name) for name in ("multipleOf", "minimum", "maximum"))
    words = ""
    if step is not None and not (value / step).is_integer():
        yield invalid(
            _at(path), value, f"{path} in body should be a multiple of {format_value(step)}"
        )
    if least is not None:
        strict = schema.get("exclusiveMinimum")
        if value < least or (strict and value == least):
            words = "greater than" if strict else "greater than or equal to"
            yield invalid(
                _at(path), value, f"{path} in body should be {words} {format_value(least)}"
            )
    if most is not None:
        strict = schema.get("exclusiveMaximum")
        if value > most or (strict and value == most):
            words = "less than" if strict else "less than or equal to"
            yield invalid(
                _at(path), value, f"{path} in body should be {words} {format_value(most)}"
            )


def _check_list(
    items: list[Any], old: Any, schema: Mapping[str, Any], path: str, found: _Found
) -> None:
    below = schema.get("items")
    if isinstance(below, Mapping):
        inner = cast("Mapping[str, Any]", below)
        for at, item in enumerate(items):
            found.add(_checked(item, earlier_item(old, item, schema), inner, f"{path}[{at}]"))
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(items) < least:
        words = f"{path} in body should have at least {least} items"
        found.tell(invalid(_at(path), len(items), words))
    if most is not None and len(items) > most:
        found.tell(too_many(_at(path), len(items), most))


def _check_map(
    entries: dict[str, Any], old: Any, schema: Mapping[str, Any], path: str, found: _Found
) -> None:
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(entries) < least:
        words = f"{path} in body should have at least {least} properties"
        found.tell(invalid(_at(path), len(entries), words))
    if most is not None and len(entries) > most:
        found.tell(too_many(_at(path), len(entries), most))
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for name, given in entries.items():
        before = earlier_entry(old, name)
        if name in properties:
            at = f"{path}.{name}" if path else name
            found.add(_checked(given, before, properties[name], at))
        elif isinstance(others, Mapping):
            below = cast("Mapping[str, Any]", others)
            found.add(_checked(given, before, below, f"{path}.{name}"))
    missing = [name for name in schema.get("required") or () if name not in entries]
    found.tell(*(required(_at(f"{path}.{name}")) for name in missing))


def _check_alternatives(value: Any, schema: Mapping[str, Any], path: str, found: _Found) -> None:
    quoted = format_value(path)
    found.applied += 1
    if some := schema.get("anyOf"):
        tried = [_checked(value, GONE, one, path) for one in some]
        right = next((one for one in tried if not one.causes), None)
        if right is None:
            words = f"{quoted} must validate at least one schema (anyOf)"
            found.tell(invalid("<nil>", "", words))
        found.add(right or _best(tried))
    if some := schema.get("oneOf"):
        tried = [_checked(value, GONE, one, path) for one in some]
        right = [one for one in tried if not one.causes]
        if len(right) != 1:
            count = f"Found {len(right)} valid alternatives" if right else "Found none valid"
            words = f"{quoted} must validate one and only one schema (oneOf). {count}"
            found.tell(invalid("<nil>", "", words))
        if len(right) < 2:
            found.add(right[0] if right else _best(tried))
    if some := schema.get("allOf"):
        tried = [_checked(value, GONE, one, path) for one in some]
        for one in tried:
            found.add(one)
        if any(one.causes for one in tried):
            none = "" if any(not one.causes for one in tried) else ". None validated"
            words = f"{quoted} must validate all the schemas (allOf){none}"
            found.tell(invalid("<nil>", "", words))
    if (other := schema.get("not")) is not None and not _checked(value, GONE, other, path).causes:
        words = f"{quoted} must not validate the schema (not)"
        found.tell(invalid("<nil>", "", words))


def _best(tried: list[_Found]) -> _Found:
    return max(tried, key=lambda one: one.applied)
