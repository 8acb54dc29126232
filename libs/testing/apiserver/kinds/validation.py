"""Validation of an object against the OpenAPI part of a schema, in a real server's words.

A part that did not change is not validated again ("ratcheting").
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from libs.testing.apiserver.objects.merge import same
from libs.testing.apiserver.status import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
    wrong_type,
)

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
FORMATS: Final = ("", "int32", "int64")
_BITS: Final = {"": 63, "int64": 63, "int32": 31}

ABSENT: Final = object()
"""The old value of a part without an old value."""


def old_entry(old: Any, name: str) -> Any:
    return cast("dict[str, Any]", old).get(name, ABSENT) if isinstance(old, dict) else ABSENT


def old_item(old: Any, item: Any, schema: Mapping[str, Any]) -> Any:
    """Return the old item with the same keys; only items of a list map correspond."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(item, dict):
        return ABSENT
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    new = cast("dict[str, Any]", item)
    for candidate in cast("list[Any]", old) if isinstance(old, list) else ():
        known = cast("dict[str, Any]", candidate) if isinstance(candidate, dict) else {}
        if known and all(known.get(key) == new.get(key) for key in keys):
            return known
    return ABSENT


def parts(
    value: Any, old: Any, schema: Mapping[str, Any], path: str, *, key: str = "[{}]"
) -> Iterator[tuple[Any, Any, Mapping[str, Any], str]]:
    """Return value, old value, schema and path of each entry or item that the schema declares.

    `key` is the format of a map key in a path: it differs between the checks of a real server.
    """
    if isinstance(value, dict):
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, entry in cast("dict[str, Any]", value).items():
            if name in properties:
                below_path = f"{path}.{name}".lstrip(".")
                yield entry, old_entry(old, name), properties[name], below_path
            elif isinstance(others, Mapping):
                below = cast("Mapping[str, Any]", others)
                yield entry, old_entry(old, name), below, path + key.format(name)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(cast("list[Any]", value)):
            yield item, old_item(old, item, schema), schema["items"], f"{path}[{index}]"


def violations(obj: Any, old: Any, root: Mapping[str, Any]) -> list[Cause]:
    """Return the violations in the changed parts of the object."""
    causes: list[Cause] = []
    for cause in _violations(obj, ABSENT if old is None else old, root, ""):
        if cause not in causes:
            causes.append(cause)
    return causes


def _violations(value: Any, old: Any, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if old is not ABSENT and same(value, old):
        return
    yield from _type_violations(value, schema, path)
    values = cast("Sequence[Any]", schema.get("enum") or ())
    if values and not any(same(value, each) for each in values):
        yield unsupported(_field(path), value, values)
    match value:
        case str():
            yield from _text_violations(value, schema, path)
        case bool() | None:
            return
        case int() | float():
            yield from _number_violations(value, schema, path)
        case list() | dict():
            for part in parts(cast("Any", value), old, schema, path, key=".{}"):
                yield from _violations(*part)
            yield from _size_violations(cast("Any", value), schema, path)
        case _:
            return
    if isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                yield required(_field(f"{path}.{name}"))


def _type_violations(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    types = ("integer", "string") if schema.get(INT_OR_STRING) else (schema.get("type", ""),)
    actual = _type_of(value)
    if types == ("",) or actual in types or (value is None and schema.get("nullable")):
        return
    if actual == "integer" and "number" in types:
        return
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return
    why = f'{path} in body must be of type {",".join(types)}: "{actual}"'
    yield wrong_type(_field(path), actual, why)


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(cast("type[Any]", type(value)), "object")


def _field(path: str) -> str:
    return path.removeprefix(".") or "<nil>"


def _text_violations(value: str, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern", "")
    if longest is not None and len(value) > longest:
        yield too_long(_field(path), longest)
    elif shortest is not None and len(value) < shortest:
        why = f"{path} in body should be at least {shortest} chars long"
        yield invalid(_field(path), value, why)
    elif pattern and not compiled(pattern).search(value):
        yield invalid(_field(path), value, f"{path} in body should match '{pattern}'")


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    r"""Compile a Go pattern, in which `$` and `\z` are the very end of the text."""
    tokens: list[str] = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL)
    ends = {"$": r"\Z", r"\z": r"\Z"}
    return re.compile("".join(ends.get(token, token) for token in tokens), re.ASCII)


def _number_violations(value: float, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    format_ = schema.get("format", "")
    limit = 2 ** _BITS[format_]
    if schema.get("type") == "integer" and not (
        float(value).is_integer() and -limit <= value < limit
    ):
        kind = f"with format {format_}" if format_ else "(default format)"
        yield invalid("<nil>", "", f"Checked value must be of type integer {kind} in {path}")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        why = f"{path} in body should be greater than or equal to {low}"
        yield invalid(_field(path), value, why)
    if high is not None and value > high:
        why = f"{path} in body should be less than or equal to {high}"
        yield invalid(_field(path), value, why)


def _size_violations(
    value: list[Any] | dict[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[Cause]:
    unit = "Items" if isinstance(value, list) else "Properties"
    fewest, most = schema.get(f"min{unit}"), schema.get(f"max{unit}")
    if fewest is not None and len(value) < fewest:
        why = f"{path} in body should have at least {fewest} {unit.lower()}"
        yield invalid(_field(path), len(value), why)
    if most is not None and len(value) > most:
        yield too_many(_field(path), len(value), most)


def duplicate_items(obj: Any, old: Any, root: Mapping[str, Any]) -> list[Cause]:
    """Return the repeated items of sets and list maps; an object may keep old repetitions."""
    if old is not None and any(_duplicates(old, root, "")):
        return []
    return list(_duplicates(obj, root, ""))


def _duplicates(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if isinstance(value, list):
        items = cast("list[Any]", value)
        list_type = schema.get("x-kubernetes-list-type")
        if list_type == "map":
            keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
            items = [{key: item[key] for key in keys if key in item} for item in items if item]
        seen: list[Any] = []
        for index, item in enumerate(items if list_type in ("set", "map") else ()):
            if any(same(item, other) for other in seen):
                yield duplicate(f"{path}[{index}]", item)
            seen.append(item)
    for part, _, below, below_path in parts(value, ABSENT, schema, path):
        yield from _duplicates(part, below, below_path)


_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean")
_KEYWORDS: Final = re.compile(
    "additionalProperties|default|description|enum|format|items|nullable|pattern|properties|"
    "required|title|type|(min|max)(imum|Items|Length|Properties)|"
    "x-kubernetes-(int-or-string|list-map-keys|list-type|map-type|preserve-unknown-fields|"
    "validations)"
)
"""The keywords that this server simulates."""


def structural_errors(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Yield a cause for each unstructural part and each keyword that is not simulated."""
    type_ = schema.get("type", "")
    if type_ not in ("", *_TYPES):
        yield unsupported(f"{path}.type", type_, _TYPES)
    untyped = (INT_OR_STRING, "x-kubernetes-preserve-unknown-fields")
    if not type_ and not any(schema.get(name) for name in untyped):
        yield required(f"{path}.type", "must not be empty")
    for name in schema:
        if not _KEYWORDS.fullmatch(name) and not (name == "anyOf" and schema.get(INT_OR_STRING)):
            yield forbidden(f"{path}.{name}", "not simulated by this server")
    if schema.get("format", "") not in FORMATS:
        yield unsupported(f"{path}.format", schema["format"], FORMATS)
    if schema.get("default") is not None:
        for cause in violations(schema["default"], None, schema):
            yield {**cause, "field": f"{path}.default.{cause['field']}"}
    properties: Mapping[str, Any] = schema.get("properties") or {}
    for name, below in properties.items():
        if name != "metadata":
            yield from structural_errors(below, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield from structural_errors(schema[name], f"{path}.{name}")
