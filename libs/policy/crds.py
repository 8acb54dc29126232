"""Generate the CustomResourceDefinition of each kind from the model, as plain data."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.policy.kinds import KINDS
from libs.policy.kinds.common import Kind, PrinterColumn
from libs.policy.kinds.nvidia_driver import IMMUTABLE, NO_SELECTOR_OF_DEFAULT
from libs.policy.shapes import About, Field, JsonType, Rule, Shape, to_json

Data = dict[str, Any]

_TYPES: Final[Mapping[JsonType, str]] = {
    JsonType.BOOLEAN: "boolean",
    JsonType.INTEGER: "integer",
    JsonType.NUMBER: "number",
    JsonType.TEXT: "string",
    JsonType.LIST: "array",
    JsonType.MAP: "object",
    JsonType.OBJECT: "object",
    JsonType.FREE_FORM: "object",
}
_NO_DETAILS: Final = About("")


def crd_manifests() -> dict[str, Data]:
    """Return every definition by CRD name."""
    manifests = [crd_manifest(kind) for kind in KINDS.values()]
    return {crd["metadata"]["name"]: crd for crd in manifests}


def crd_manifest(kind: Kind) -> Data:
    """Return the CustomResourceDefinition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
            },
            "scope": "Cluster",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": crd_schema(kind)},
                }
            ],
        },
    }


def crd_schema(kind: Kind) -> Data:
    """Return the structural schema of a kind's objects."""
    spec = _object(kind.spec_shape)
    spec["description"] = "The wanted configuration."
    if kind.rules:
        spec["x-kubernetes-validations"] = [_rule(rule) for rule in kind.rules]
    root: Data = {
        "description": kind.description,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {
                "description": "The status that Sluice writes.",
                **_object(kind.status_shape),
            },
        },
    }
    if kind.spec_required:
        root["required"] = ["spec"]
    return root


def _column(column: PrinterColumn) -> Data:
    return {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        **({"priority": 1} if column.wide else {}),
    }


def _rule(rule: Rule) -> Data:
    return {"rule": rule.text, "message": rule.message}


def _object(shape: Shape) -> Data:
    schema: Data = {
        "type": "object",
        "properties": {field.name: _field(field) for field in shape.fields},
    }
    # A field whose default the API server stores is not required: clients that validate objects
    # do not apply defaults.
    required = [
        field.name for field in shape.fields if field.about.required and not field.about.stored
    ]
    if required:
        schema["required"] = required
    return schema


def _field(field: Field) -> Data:
    about = field.about
    words = [about.description, *([f"Deprecated: {about.deprecated}."] if about.deprecated else [])]
    schema: Data = {"description": " ".join(words), **_value(field.shape, about)}
    if about.stored:
        schema["default"] = to_json(field.default, field.shape)
    if about.rules:
        schema["x-kubernetes-validations"] = [_rule(rule) for rule in about.rules]
    return schema


def _value(shape: Shape, about: About) -> Data:
    if shape.type is JsonType.OBJECT:
        return {**_object(shape), **({"x-kubernetes-map-type": "atomic"} if about.atomic else {})}
    if shape.type is JsonType.INT_OR_STRING:
        return _amount(about)
    schema: Data = {"type": _TYPES[shape.type]}
    if shape.type is JsonType.FREE_FORM:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if shape.type is JsonType.LIST and shape.items is not None:
        schema["items"] = _value(shape.items, _NO_DETAILS)
        if about.keys:
            schema["x-kubernetes-list-type"] = "map"
            schema["x-kubernetes-list-map-keys"] = list(about.keys)
        else:
            schema["x-kubernetes-list-type"] = "atomic"
    if shape.type is JsonType.MAP and shape.items is not None:
        schema["additionalProperties"] = _value(
            shape.items, about if about.pattern else _NO_DETAILS
        )
        if about.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema
    if shape.type is JsonType.TEXT:
        schema |= {"enum": list(shape.choices)} if shape.choices else {}
        schema |= {"pattern": about.pattern} if about.pattern else {}
    if shape.type is JsonType.INTEGER:
        schema |= _numbers(about)
    return schema


def _amount(about: About) -> Data:
    schema: Data = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    schema |= {"pattern": about.pattern} if about.pattern else {}
    return schema | ({} if about.minimum is None else {"minimum": about.minimum})


def _numbers(about: About) -> Data:
    schema: Data = {"format": f"int{about.bits}"}
    schema |= {} if about.minimum is None else {"minimum": about.minimum}
    return schema | ({} if about.maximum is None else {"maximum": about.maximum})


RulePredicate = Callable[[Any, Any], bool]
"""Report whether a value satisfies the rule; the arguments are the new and old value (or None)."""


def _unchanged(value: Any, old: Any) -> bool:
    return bool(value == old)


def _default_selects_nothing(spec: Any, _old: Any) -> bool:
    return not spec.get("default") or not spec.get("nodeSelector")


CEL_RULES: Final[Mapping[str, RulePredicate]] = {
    IMMUTABLE: _unchanged,
    NO_SELECTOR_OF_DEFAULT: _default_selects_nothing,
}
"""The predicate of every CEL rule, by the rule's text."""
