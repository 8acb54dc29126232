"""What a CustomResourceDefinition says its objects are like: pruning, defaults, validation.

CEL is not evaluated: each rule's text has a predicate beside it, given by whoever wrote the rule.
Each part of that is a module here. Must not know the kinds, the store, nor what objects are for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from libs.testing.apiserver.schemas.causes import Cause, invalid
from libs.testing.apiserver.schemas.duplicates import duplicate_items
from libs.testing.apiserver.schemas.rules import Predicate, broken_rules, rule_texts
from libs.testing.apiserver.schemas.structure import structural_errors
from libs.testing.apiserver.schemas.validation import violations
from libs.testing.apiserver.status import StatusError

_META: Final = ("apiVersion", "kind", "metadata")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""With one of these a server leaves the rules unchecked."""


@dataclass(frozen=True)
class Schema:
    """A structural schema, and the predicates of its rules."""

    root: Mapping[str, Any]
    rules: Mapping[str, Predicate]

    def prune(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The object without fields that the schema does not name."""
        return _pruned(obj, {**self.root, _EMBEDDED: True})

    def default(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The object with the defaults of what is not said, wherever the parent is there."""
        return _defaulted(_without_nulls(obj, self.root), self.root)

    def validate(
        self,
        obj: dict[str, Any],
        old: dict[str, Any] | None = None,
        rules: Mapping[str, Predicate] | None = None,
    ) -> list[Cause]:
        """What is wrong with the object; of an update only what it changed."""
        causes = [*violations(obj, old, self.root), *duplicate_items(obj, old, self.root)]
        if not rule_texts(self.root):
            return causes
        if any(cause["reason"] in _BLOCKING for cause in causes):
            words = (
                "some validation rules were not checked because the object was invalid; "
                "correct the existing errors to complete validation"
            )
            return [*causes, invalid("<nil>", None, words)]
        known = {**self.rules, **(rules or {})}
        return [*causes, *broken_rules(obj, old, self.root, known)]


def structural_schema(
    schema: Mapping[str, Any],
    rules: Mapping[str, Predicate] | None = None,
    *,
    where: str = "spec.validation.openAPIV3Schema",
) -> Schema:
    """The schema, or a refusal that says what is not structural about it."""
    causes = structural_errors(schema, where)
    if causes:
        words = ", ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
        raise StatusError(422, "Invalid", f"the schema is not structural: {words}", causes=causes)
    known = dict(rules or {})
    missing = sorted(rule_texts(schema) - known.keys())
    if missing and rules is not None:
        raise LookupError(
            f"a schema has rules without a predicate: {missing}; give `rules` one for each text"
        )
    return Schema(schema, known)


def _pruned(value: Any, schema: Mapping[str, Any] | None) -> Any:
    if schema is not None and schema.get(_PRESERVE):
        return _kept(value, schema)
    if isinstance(value, list):
        items = None if schema is None else schema.get("items")
        return [_pruned(item, items) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    if schema is None:
        return {}
    result: dict[str, Any] = {}
    for name, given in entries.items():
        known, below = _below(schema, name)
        if schema.get(_EMBEDDED) and name in _META:
            result[name] = given
        elif known:
            result[name] = _pruned(given, below)
    return result


def _kept(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """Where unknown fields stay, known ones are pruned all the same."""
    if schema is None:
        return value
    if isinstance(value, list):
        return [_kept(item, schema.get("items")) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, given in cast("dict[str, Any]", value).items():
        known, below = _below(schema, name)
        meta = schema.get(_EMBEDDED) and name in _META
        result[name] = _pruned(given, below) if known and not meta else given
    return result


def _below(schema: Mapping[str, Any], name: str) -> tuple[bool, Mapping[str, Any] | None]:
    """Whether the schema names this entry, and the schema of it."""
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
    """Without a null that may not be one and has no default."""
    if isinstance(value, list):
        items = None if schema is None else schema.get("items")
        return [_without_nulls(item, items) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, given in cast("dict[str, Any]", value).items():
        below = None if schema is None else _below(schema, name)[1]
        if not _is_null(given, below) or (below or {}).get("default") is not None:
            result[name] = _without_nulls(given, below)
    return result


def _defaulted(value: Any, schema: Mapping[str, Any] | None) -> Any:
    if schema is None:
        return value
    if isinstance(value, list):
        items: Mapping[str, Any] | None = schema.get("items")
        return [_defaulted(_filled(item, items), items) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result = dict(cast("dict[str, Any]", value))
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    for name, below in properties.items():
        if below.get("default") is not None and name not in result:
            result[name] = below["default"]
    for name, given in result.items():
        below = _below(schema, name)[1]
        result[name] = _defaulted(_filled(given, below), below)
    return result


def _filled(value: Any, schema: Mapping[str, Any] | None) -> Any:
    return (schema or {}).get("default") if _is_null(value, schema) else value
