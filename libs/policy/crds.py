"""The CustomResourceDefinition of each kind, as plain data, made from the model.

Unknown fields are pruned, as everywhere in Kubernetes. Knows nothing of files.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.policy.kinds import KINDS
from libs.policy.kinds.kind import Kind, PrinterColumn
from libs.policy.kinds.nvidia_driver import IMMUTABLE, NO_SELECTOR_OF_DEFAULT
from libs.policy.manifests import to_json
from libs.policy.shapes import About, Field, JsonType, Rule, Shape

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
_UNTOLD: Final = About("")


def crd_manifests() -> dict[str, Data]:
    """Every definition, by the name of its CRD."""
    made = [crd_manifest(kind) for kind in KINDS.values()]
    return {crd["metadata"]["name"]: crd for crd in made}


def crd_manifest(kind: Kind) -> Data:
    """What the API server is told of this kind."""
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
    """The structural schema of its objects."""
    spec = _object(kind.spec_shape)
    spec["description"] = "What people want."
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
            "status": {"description": "What Sluice says of it.", **_object(kind.status_shape)},
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
    made: Data = {
        "type": "object",
        "properties": {field.name: _field(field) for field in shape.fields},
    }
    # What the server fills in need not be asked for: clients that check know no defaults.
    required = [
        field.name for field in shape.fields if field.about.required and not field.about.stored
    ]
    if required:
        made["required"] = required
    return made


def _field(field: Field) -> Data:
    about = field.about
    words = [about.description, *([f"Deprecated: {about.deprecated}."] if about.deprecated else [])]
    made: Data = {"description": " ".join(words), **_value(field.shape, about)}
    if about.stored:
        made["default"] = to_json(field.default, field.shape)
    if about.rules:
        made["x-kubernetes-validations"] = [_rule(rule) for rule in about.rules]
    return made


def _value(shape: Shape, about: About) -> Data:
    if shape.type is JsonType.OBJECT:
        return {**_object(shape), **({"x-kubernetes-map-type": "atomic"} if about.atomic else {})}
    if shape.type is JsonType.INT_OR_STRING:
        return _amount(about)
    made: Data = {"type": _TYPES[shape.type]}
    if shape.type is JsonType.FREE_FORM:
        made["x-kubernetes-preserve-unknown-fields"] = True
    if shape.type is JsonType.LIST and shape.items is not None:
        made["items"] = _value(shape.items, _UNTOLD)
        if about.keys:
            made["x-kubernetes-list-type"] = "map"
            made["x-kubernetes-list-map-keys"] = list(about.keys)
        else:
            made["x-kubernetes-list-type"] = "atomic"
    if shape.type is JsonType.MAP and shape.items is not None:
        made["additionalProperties"] = _value(shape.items, about if about.pattern else _UNTOLD)
        if about.atomic:
            made["x-kubernetes-map-type"] = "atomic"
        return made
    if shape.type is JsonType.TEXT:
        made |= {"enum": list(shape.choices)} if shape.choices else {}
        made |= {"pattern": about.pattern} if about.pattern else {}
    if shape.type is JsonType.INTEGER:
        made |= _numbers(about)
    return made


def _amount(about: About) -> Data:
    made: Data = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    made |= {"pattern": about.pattern} if about.pattern else {}
    return made | ({} if about.minimum is None else {"minimum": about.minimum})


def _numbers(about: About) -> Data:
    made: Data = {"format": f"int{about.bits}"}
    made |= {} if about.minimum is None else {"minimum": about.minimum}
    return made | ({} if about.maximum is None else {"maximum": about.maximum})


RulePredicate = Callable[[Any, Any], bool]
"""Whether a value keeps the rule; the second is what it was before, or None."""


def _unchanged(value: Any, old: Any) -> bool:
    return bool(value == old)


def _default_selects_nothing(spec: Any, _old: Any) -> bool:
    return not spec.get("default") or not spec.get("nodeSelector")


CEL_RULES: Final[Mapping[str, RulePredicate]] = {
    IMMUTABLE: _unchanged,
    NO_SELECTOR_OF_DEFAULT: _default_selects_nothing,
}
"""Every rule of every CRD, by its text."""
