"""The CEL rules of a schema. CEL is not evaluated: a predicate stands for the text of each rule."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from libs.testing.apiserver.objects.comparison import same
from libs.testing.apiserver.schemas.causes import (
    OMITTED,
    Cause,
    duplicate,
    forbidden,
    invalid,
    required,
)
from libs.testing.apiserver.schemas.validation import ABSENT, parts

Predicate = Callable[[Any, Any], bool]
"""Returns whether a value satisfies the rule; the second argument is the old value, or None."""

_RULES = "x-kubernetes-validations"


def rule_texts(schema: Mapping[str, Any]) -> set[str]:
    """Return the texts of all rules of a schema."""
    found = {rule["rule"] for rule in schema.get(_RULES) or ()}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    for below in properties.values():
        found |= rule_texts(below)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            found |= rule_texts(schema[name])
    return found


def broken_rules(
    value: Any, old: Any, schema: Mapping[str, Any], rules: Mapping[str, Predicate], path: str = ""
) -> Iterator[Cause]:
    """Return the causes of all broken rules.

    A transition rule, whose text names `oldSelf`, applies only where there was a value before.
    """
    if value is None:
        return
    has_old = old is not ABSENT and old is not None
    unchanged = has_old and same(value, old)
    for rule in schema.get(_RULES) or ():
        transition = "oldSelf" in rule["rule"]
        if transition and not has_old and not rule.get("optionalOldSelf"):
            continue
        if unchanged and not transition:
            continue
        predicate = rules.get(rule["rule"])
        if predicate is None:
            raise LookupError(f"no predicate was given for the rule {rule['rule']!r} at {path!r}")
        if not predicate(value, old if has_old else None):
            yield _cause(value, rule, schema, path)
    for part in parts(value, old, schema, path):
        below, before, below_schema, below_path = part
        yield from broken_rules(below, before, below_schema, rules, below_path)


def _cause(value: Any, rule: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Cause:
    message = str(rule.get("message", "")).strip() or f"failed rule: {rule['rule'].strip()}"
    field = (path + str(rule.get("fieldPath", ""))).lstrip(".") or "<nil>"
    shown = OMITTED if schema.get("type") in ("object", "array") else value
    match rule.get("reason"):
        case "FieldValueForbidden":
            return forbidden(field, message)
        case "FieldValueRequired":
            return required(field, message)
        case "FieldValueDuplicate":
            return duplicate(field, shown)
        case _:
            return invalid(field, shown, message)
