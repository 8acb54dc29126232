"""The schema of a custom kind: pruning, defaulting and validation of its objects."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from libs.testing.apiserver.kinds.validation import (
    ABSENT,
    duplicate_items,
    parts,
    structural_errors,
    violations,
)
from libs.testing.apiserver.objects.merge import same
from libs.testing.apiserver.status import (
    OMITTED,
    Cause,
    StatusError,
    duplicate,
    forbidden,
    invalid,
    required,
)

Predicate = Callable[[Any, Any], bool]
"""Returns whether a value satisfies the rule; the second argument is the old value, or None."""

_RULES = "x-kubernetes-validations"
_META: Final = ("apiVersion", "kind", "metadata")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""Causes after which a server does not check the rules."""


@dataclass(frozen=True)
class Schema:
    """A structural schema, and the predicates of its rules."""

    root: Mapping[str, Any]
    rules: Mapping[str, Predicate]

    @cached_property
    def _has_rules(self) -> bool:
        return bool(rule_texts(self.root))

    def prune(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return the object without the fields that the schema does not declare."""
        meta = {name: obj[name] for name in _META if name in obj}
        rest = {name: value for name, value in obj.items() if name not in _META}
        return {**meta, **_pruned(rest, self.root)}

    def default(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return the object with the defaults of missing fields whose parent is present."""
        return _defaulted(_without_nulls(obj, self.root), self.root)

    def validate(
        self,
        obj: dict[str, Any],
        old: dict[str, Any] | None = None,
        rules: Mapping[str, Predicate] | None = None,
    ) -> list[Cause]:
        """Return the violations of the object; of an update only those in changed parts."""
        causes = [*violations(obj, old, self.root), *duplicate_items(obj, old, self.root)]
        if not self._has_rules:
            return causes
        if any(cause["reason"] in _BLOCKING for cause in causes):
            why = (
                "some validation rules were not checked because the object was invalid; "
                "correct the existing errors to complete validation"
            )
            return [*causes, invalid("<nil>", None, why)]
        return [*causes, *broken_rules(obj, old, self.root, {**self.rules, **(rules or {})})]


def structural_schema(
    schema: Mapping[str, Any],
    rules: Mapping[str, Predicate] | None = None,
    *,
    where: str = "spec.validation.openAPIV3Schema",
) -> Schema:
    """Return the schema; refuse one that is not structural."""
    causes = list(structural_errors(schema, where))
    if causes:
        text = ", ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
        raise StatusError(422, "Invalid", f"the schema is not structural: {text}", causes=causes)
    predicates = dict(rules or {})
    missing = sorted(rule_texts(schema) - predicates.keys())
    if missing and rules is not None:
        raise LookupError(
            f"a schema has rules without a predicate: {missing}; give `rules` one for each text"
        )
    return Schema(schema, predicates)


def _pruned(value: Any, schema: Mapping[str, Any] | None, *, keep: bool = False) -> Any:
    """Return the value without undeclared fields; `keep` preserves them."""
    keep = keep if schema is None else bool(schema.get(_PRESERVE))
    if isinstance(value, list):
        items = None if schema is None else schema.get("items")
        return [_pruned(item, items, keep=keep) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, entry in cast("dict[str, Any]", value).items():
        declared, below = (False, None) if schema is None else _below(schema, name)
        if declared or keep:
            result[name] = _pruned(entry, below, keep=keep)
    return result


def _below(schema: Mapping[str, Any], name: str) -> tuple[bool, Mapping[str, Any] | None]:
    """Return whether the schema declares this entry, and the schema of it."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if name in properties:
        return True, properties[name]
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        return True, cast("Mapping[str, Any]", others)
    return bool(others), None


def _is_null(value: Any, schema: Mapping[str, Any] | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable")


def _without_nulls(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """Return the value without nulls that are neither nullable nor defaulted."""
    if isinstance(value, list):
        items = None if schema is None else schema.get("items")
        return [_without_nulls(item, items) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, entry in cast("dict[str, Any]", value).items():
        below = None if schema is None else _below(schema, name)[1]
        if not _is_null(entry, below) or (below or {}).get("default") is not None:
            result[name] = _without_nulls(entry, below)
    return result


def _defaulted(value: Any, schema: Mapping[str, Any] | None) -> Any:
    if schema is None:
        return value
    if isinstance(value, list):
        items: Mapping[str, Any] | None = schema.get("items")
        return [_defaulted(_or_default(item, items), items) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result = dict(cast("dict[str, Any]", value))
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    for name, below in properties.items():
        if below.get("default") is not None and name not in result:
            result[name] = below["default"]
    for name, entry in result.items():
        below = _below(schema, name)[1]
        result[name] = _defaulted(_or_default(entry, below), below)
    return result


def _or_default(value: Any, schema: Mapping[str, Any] | None) -> Any:
    return (schema or {}).get("default") if _is_null(value, schema) else value


def rule_texts(schema: Mapping[str, Any]) -> set[str]:
    """Return the texts of all rules of a schema."""
    texts = {rule["rule"] for rule in schema.get(_RULES) or ()}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    for below in properties.values():
        texts |= rule_texts(below)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            texts |= rule_texts(schema[name])
    return texts


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
