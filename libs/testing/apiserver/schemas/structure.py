"""Checks that a schema is structural, and that this server simulates all of its keywords."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from libs.testing.apiserver.schemas.causes import Cause, forbidden, invalid, required, unsupported
from libs.testing.apiserver.schemas.validation import FORMATS, INT_OR_STRING, compiled, violations

_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_REFUSED: Final = ("$ref", "definitions", "dependencies", "id", "patternProperties")
"""Refused by a real server too."""
_NOT_SIMULATED: Final = (
    "allOf",
    "oneOf",
    "not",
    "multipleOf",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
)
_EITHER_TYPE: Final = [{"type": "integer"}, {"type": "string"}]


def structural_errors(schema: Mapping[str, Any], path: str) -> list[Cause]:
    return list(_errors(schema, path, "root"))


def _errors(schema: Mapping[str, Any], path: str, level: str) -> Iterator[Cause]:
    yield from _type_errors(schema, path, level)
    yield from _keyword_errors(schema, path)
    others = schema.get("additionalProperties")
    if others is not None:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if schema.get("properties"):
            why = "additionalProperties and properties are mutual exclusive"
            yield forbidden(f"{path}.additionalProperties", why)
        if isinstance(others, Mapping):
            below = cast("Mapping[str, Any]", others)
            yield from _errors(below, f"{path}.additionalProperties", "field")
    properties: Mapping[str, Any] = schema.get("properties") or {}
    for name, below in properties.items():
        if name != "metadata" or level != "root":
            yield from _errors(below, f"{path}.properties[{name}]", "field")
    if isinstance(schema.get("items"), Mapping):
        yield from _errors(schema["items"], f"{path}.items", "item")
    if schema.get("default") is not None:
        for cause in violations(schema["default"], None, schema):
            below = "" if cause["field"] == "<nil>" else f".{cause['field']}"
            yield {**cause, "field": f"{path}.default{below}"}
    yield from _list_errors(schema, path)


def _type_errors(schema: Mapping[str, Any], path: str, level: str) -> Iterator[Cause]:
    type_ = schema.get("type", "")
    either, preserve = schema.get(INT_OR_STRING), schema.get(_PRESERVE)
    if type_ and type_ not in _TYPES:
        yield unsupported(f"{path}.type", type_, _TYPES)
    if either and preserve:
        yield invalid(f"{path}.{_PRESERVE}", True, f"must be false if {INT_OR_STRING} is true")
    if either and type_:
        yield forbidden(f"{path}.type", f"must be empty if {INT_OR_STRING} is true")
    if not type_ and not either and not preserve:
        where = {
            "root": "at the root",
            "item": "for specified array items",
            "field": "for specified object fields",
        }
        yield required(f"{path}.type", f"must not be empty {where[level]}")
    elif level == "root" and type_ != "object":
        yield invalid(f"{path}.type", type_, "must be object at the root")
    if type_ == "array" and not isinstance(schema.get("items"), Mapping):
        yield required(f"{path}.items", "must be specified")


def _keyword_errors(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for name in _REFUSED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    for name in _NOT_SIMULATED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", "not simulated by this server")
    if schema.get("anyOf") and not (schema.get(INT_OR_STRING) and schema["anyOf"] == _EITHER_TYPE):
        yield forbidden(f"{path}.anyOf", "not simulated by this server")
    if schema.get("format", "") not in FORMATS:
        yield unsupported(f"{path}.format", schema["format"], FORMATS)
    try:
        compiled(schema.get("pattern", ""))
    except re.error as error:
        why = f"must be a valid regular expression, but isn't: {error}"
        yield invalid(f"{path}.pattern", schema["pattern"], why)


def _list_errors(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    list_type = schema.get("x-kubernetes-list-type")
    keys = cast("Sequence[str]", schema.get("x-kubernetes-list-map-keys") or ())
    keys_path = f"{path}.x-kubernetes-list-map-keys"
    if list_type not in (None, "atomic", "set", "map"):
        yield unsupported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if list_type == "map" and not keys:
        yield required(keys_path, "must not be empty if x-kubernetes-list-type is map")
    if list_type != "map" and keys:
        yield forbidden(keys_path, "must be empty if x-kubernetes-list-type is not map")
    items: Mapping[str, Any] = schema.get("items") or {}
    properties: Mapping[str, Any] = items.get("properties") or {}
    for key in keys:
        if key not in properties:
            yield invalid(keys_path, key, "entries must all be names of item properties")
        elif "default" not in properties[key] and key not in (items.get("required") or ()):
            why = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or "
                "be a required property"
            )
            yield required(f"{path}.items.properties[{key}].default", why)
