"""Generate the CustomResourceDefinition of each kind from the model, as plain data."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.policy.kinds import DEFINED_KINDS
from libs.policy.kinds.common import Kind, PrinterColumn
from libs.policy.kinds.nvidia_driver import IMMUTABLE, NO_SELECTOR_OF_DEFAULT
from libs.policy.shapes import About, Field, JsonType, Rule, Shape, to_json

Data = dict[str, Any]

_NO_DETAILS: Final = About()


def crd_manifests() -> dict[str, Data]:
    """Return every definition by CRD name."""
    manifests = [crd_manifest(kind) for kind in DEFINED_KINDS]
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
                    **({"subresources": {"status": {}}} if kind.status_subresource else {}),
                    "schema": {"openAPIV3Schema": crd_schema(kind)},
                }
            ],
        },
    }


def crd_schema(kind: Kind) -> Data:
    """Return the structural schema of a kind's objects."""
    spec = _object(kind.spec_shape)
    spec["description"] = kind.spec_description
    if kind.spec_stored:
        spec["default"] = {}
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
                **_set(default=_new_status(kind)),
            },
        },
    }
    if kind.spec_required:
        root["required"] = ["spec"]
    return root


def _new_status(kind: Kind) -> Data | None:
    """Return the status of an object that nobody has looked at, so that it is not taken for done.

    It is the default of the whole status, never of its field: an object whose status another
    version of ours wrote would else count as never observed.
    """
    fields = {field.name for field in kind.status_shape.fields}
    if "observedGeneration" not in fields:
        return None
    return {"observedGeneration": -1, **({"state": "notReady"} if "state" in fields else {})}


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
    # A field with a default that the API server stores is not required: clients that validate
    # objects do not apply defaults.
    required = [
        field.name for field in shape.fields if field.about.required and not field.about.stored
    ]
    if required:
        schema["required"] = required
    return schema


def _field(field: Field) -> Data:
    about = field.about
    sentences = [
        about.description,
        *([f"Deprecated: {about.deprecated}."] if about.deprecated else []),
    ]
    schema: Data = {"description": " ".join(sentences), **_value(field.shape, about)}
    if about.stored:
        schema["default"] = to_json(field.default, field.shape)
    if about.rules:
        schema["x-kubernetes-validations"] = [_rule(rule) for rule in about.rules]
    return schema


def _value(shape: Shape, about: About) -> Data:
    match shape.type:
        case JsonType.OBJECT:
            return _object(shape) | ({"x-kubernetes-map-type": "atomic"} if about.atomic else {})
        case JsonType.INT_OR_STRING:
            types = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
            limits = _set(pattern=about.pattern or None, minimum=about.minimum)
            return {**types, "x-kubernetes-int-or-string": True, **limits}
        case JsonType.INTEGER:
            limits = _set(minimum=about.minimum, maximum=about.maximum)
            return {"type": "integer", "format": f"int{about.bits}", **limits}
        case JsonType.TEXT:
            choices = list(shape.choices) or None
            return {"type": "string", **_set(enum=choices, pattern=about.pattern or None)}
        case JsonType.FREE_FORM:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case JsonType.LIST:
            items = {"type": "array", "items": _value(_items(shape), _NO_DETAILS)}
            if not about.keys:
                return {**items, "x-kubernetes-list-type": "atomic"}
            keys = {"x-kubernetes-list-map-keys": list(about.keys)}
            return {**items, "x-kubernetes-list-type": "map", **keys}
        case JsonType.MAP:
            values = _value(_items(shape), about if about.pattern else _NO_DETAILS)
            atomic = {"x-kubernetes-map-type": "atomic"} if about.atomic else {}
            return {"type": "object", "additionalProperties": values, **atomic}
        case _:
            return {"type": shape.type.value}


def _items(shape: Shape) -> Shape:
    if shape.items is None:
        raise TypeError(f"a shape of type {shape.type.value} has no items")
    return shape.items


def _set(**limits: Any) -> Data:
    """Return the limits that are set."""
    return {name: limit for name, limit in limits.items() if limit is not None}


RulePredicate = Callable[[Any, Any], bool]
"""A function that returns whether a new value satisfies the rule, given the old one (or None)."""


def _unchanged(value: Any, old: Any) -> bool:
    return bool(value == old)


def _default_selects_nothing(spec: Any, _old: Any) -> bool:
    return not spec.get("default") or not spec.get("nodeSelector")


CEL_RULES: Final[Mapping[str, RulePredicate]] = {
    IMMUTABLE: _unchanged,
    NO_SELECTOR_OF_DEFAULT: _default_selects_nothing,
}
"""The predicate of every CEL rule, by the rule's text."""
