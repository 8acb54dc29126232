"""The rules of a schema: each text has a predicate that stands for it.

A rule about a change (its text names `oldSelf`) is asked only where there was a value before.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from libs.testing.apiserver.objects.comparison import same
from libs.testing.apiserver.schemas.causes import (
    OMITTED,
    Cause,
    duplicate,
    forbidden,
    invalid,
    required,
)
from libs.testing.apiserver.schemas.ratchet import GONE, earlier_entry, earlier_item

Predicate = Callable[[Any, Any], bool]
"""Whether a value keeps the rule; the second is what it was before, or None."""

_RULES = "x-kubernetes-validations"


def rule_texts(schema: Mapping[str, Any]) -> set[str]:
    """The texts of all rules of a schema."""
    found = {rule["rule"] for rule in schema.get(_RULES) or ()}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    for below in properties.values():
        found |= rule_texts(below)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            found |= rule_texts(schema[name])
    return found


def broken_rules(
    obj: Any, old: Any, root: Mapping[str, Any], rules: Mapping[str, Predicate]
) -> list[Cause]:
    """What the rules say of the object."""
    return list(_broken(obj, GONE if old is None else old, root, rules, ""))


def _broken(
    value: Any, old: Any, schema: Mapping[str, Any], rules: Mapping[str, Predicate], path: str
) -> Iterator[Cause]:
    if value is None:
        return
    unchanged = old is not GONE and same(value, old)
    for rule in schema.get(_RULES) or ():
        about_change = "oldSelf" in rule["rule"]
        compared = old is not GONE and old is not None
        if about_change and not compared and not rule.get("optionalOldSelf"):
            continue
        if unchanged and not about_change:
            continue
        predicate = rules.get(rule["rule"])
        if predicate is None:
            raise LookupError(f"no predicate was given for the rule {rule['rule']!r} at {path!r}")
        if not predicate(value, old if compared else None):
            yield _told(value, rule, schema, path)
    yield from _broken_below(value, old, schema, rules, path)


def _broken_below(
    value: Any, old: Any, schema: Mapping[str, Any], rules: Mapping[str, Predicate], path: str
) -> Iterator[Cause]:
    if isinstance(value, dict):
        properties: Mapping[str, Any] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, given in cast("dict[str, Any]", value).items():
            before = earlier_entry(old, name)
            if name in properties:
                at = f"{path}.{name}".lstrip(".")
                yield from _broken(given, before, properties[name], rules, at)
            elif isinstance(others, Mapping):
                below = cast("Mapping[str, Any]", others)
                yield from _broken(given, before, below, rules, f"{path}[{name}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for at, item in enumerate(cast("list[Any]", value)):
            before = earlier_item(old, item, schema)
            yield from _broken(item, before, schema["items"], rules, f"{path}[{at}]")


def _told(value: Any, rule: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Cause:
    message = str(rule.get("message", "")).strip() or f"failed rule: {rule['rule'].strip()}"
    at = (path + str(rule.get("fieldPath", ""))).lstrip(".") or "<nil>"
    shown = OMITTED if schema.get("type") in ("object", "array") else value
    match rule.get("reason"):
        case "FieldValueForbidden":
            return forbidden(at, message)
        case "FieldValueRequired":
            return required(at, message)
        case "FieldValueDuplicate":
            return duplicate(at, shown)
        case _:
            return invalid(at, shown, message)
