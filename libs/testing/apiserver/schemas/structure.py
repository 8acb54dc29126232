"""Whether a schema is structural: every field has a type, and alternatives only judge values.

Knows nothing of objects.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from libs.testing.apiserver.schemas.causes import Cause, forbidden, invalid, required, unsupported
from libs.testing.apiserver.schemas.validation import compiled, violations

_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean")
_EITHER: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_NOWHERE: Final = {
    "$ref": "$ref is not supported",
    "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported",
    "id": "id is not supported",
    "patternProperties": "patternProperties is not supported",
    "additionalItems": "additionalItems is not supported",
}
_NOT_IN_ALTERNATIVES: Final = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    _PRESERVE: "must be false to be structural",
    _EMBEDDED: "must be false to be structural",
    _EITHER: "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


def structural_errors(schema: Mapping[str, Any], where: str) -> list[Cause]:
    """What is not structural."""
    return list(_faults(schema, where, "root"))


def _faults(schema: Mapping[str, Any], path: str, level: str) -> Iterator[Cause]:
    yield from _wrong_type(schema, path, level)
    yield from (
        forbidden(f"{path}.{name}", words) for name, words in _NOWHERE.items() if schema.get(name)
    )
    if schema.get("uniqueItems"):
        yield forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true")
    others = schema.get("additionalProperties")
    if others is not None:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if schema.get("properties"):
            words = "additionalProperties and properties are mutual exclusive"
            yield forbidden(f"{path}.additionalProperties", words)
        if isinstance(others, Mapping):
            below = cast("Mapping[str, Any]", others)
            yield from _faults(below, f"{path}.additionalProperties", "field")
    properties: Mapping[str, Any] = schema.get("properties") or {}
    for name, below in properties.items():
        if name != "metadata" or level != "root":
            yield from _faults(below, f"{path}.properties[{name}]", "field")
    if isinstance(schema.get("items"), Mapping):
        yield from _faults(schema["items"], f"{path}.items", "item")
    yield from _wrong_values(schema, path)
    yield from _wrong_list(schema, path)


def _wrong_type(schema: Mapping[str, Any], path: str, level: str) -> Iterator[Cause]:
    kind = schema.get("type", "")
    either, preserve = schema.get(_EITHER), schema.get(_PRESERVE)
    if kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    if either and preserve:
        yield invalid(f"{path}.{_PRESERVE}", True, f"must be false if {_EITHER} is true")
    if either and kind:
        yield forbidden(f"{path}.type", f"must be empty if {_EITHER} is true")
    if schema.get(_EMBEDDED) and kind != "object":
        yield required(f"{path}.type", f"must be object if {_EMBEDDED} is true")
    elif not kind and not either and not preserve:
        place = {
            "root": "at the root",
            "item": "for specified array items",
            "field": "for specified object fields",
        }
        yield required(f"{path}.type", f"must not be empty {place[level]}")
    elif level == "root" and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if kind == "array" and not isinstance(schema.get("items"), Mapping):
        yield required(f"{path}.items", "must be specified")


def _wrong_values(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from _wrong_alternatives(schema, path, either=bool(schema.get(_EITHER)))
    yield from _wrong_pattern(schema, path)
    default = schema.get("default")
    if default is not None:
        for cause in violations(default, None, schema):
            below = "" if cause["field"] == "<nil>" else f".{cause['field']}"
            yield {**cause, "field": f"{path}.default{below}"}


def _wrong_pattern(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    pattern = schema.get("pattern", "")
    try:
        compiled(pattern)
    except re.error as error:
        words = f"must be a valid regular expression, but isn't: {error}"
        yield invalid(f"{path}.pattern", pattern, words)


def _wrong_alternatives(
    schema: Mapping[str, Any], path: str, *, either: bool = False
) -> Iterator[Cause]:
    for name in ("anyOf", "allOf", "oneOf"):
        for at, one in enumerate(cast("Sequence[Mapping[str, Any]]", schema.get(name) or ())):
            if either and name == "anyOf" and schema[name] == _INT_OR_STRING:
                continue
            inside = either and name == "allOf" and at == 0
            yield from _wrong_alternative(one, f"{path}.{name}[{at}]", either=inside)
    if schema.get("not") is not None:
        yield from _wrong_alternative(schema["not"], f"{path}.not")


def _wrong_alternative(
    schema: Mapping[str, Any], path: str, *, either: bool = False
) -> Iterator[Cause]:
    yield from (
        forbidden(f"{path}.{name}", words)
        for name, words in _NOT_IN_ALTERNATIVES.items()
        if schema.get(name)
    )
    yield from _wrong_alternatives(schema, path, either=either)
    yield from _wrong_pattern(schema, path)
    for name, below in cast("Mapping[str, Any]", schema.get("properties") or {}).items():
        at = f"{path}.properties[{name}]"
        if name == "metadata":
            yield forbidden(at, "must not be specified in a nested context")
        yield from _wrong_alternative(below, at)
    if isinstance(schema.get("items"), Mapping):
        yield from _wrong_alternative(schema["items"], f"{path}.items")


def _wrong_list(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    keys = cast("Sequence[str]", schema.get("x-kubernetes-list-map-keys") or ())
    at = f"{path}.x-kubernetes-list-map-keys"
    if kind is not None and kind not in ("atomic", "set", "map"):
        yield unsupported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
    if kind == "map" and not keys:
        yield required(at, "must not be empty if x-kubernetes-list-type is map")
    if kind != "map" and keys:
        yield forbidden(at, "must be empty if x-kubernetes-list-type is not map")
    items: Mapping[str, Any] = schema.get("items") or {}
    for key in keys:
        properties: Mapping[str, Any] = items.get("properties") or {}
        if key not in properties:
            yield invalid(at, key, "entries must all be names of item properties")
        elif "default" not in properties[key] and key not in (items.get("required") or ()):
            at_key = f"{path}.items.properties[{key}].default"
            words = "this property is in x-kubernetes-list-map-keys, so it must have a default or "
            yield required(at_key, words + "be a required property")
