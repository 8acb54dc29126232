"""The CustomResourceDefinition of each kind, as plain data, made from the model.

Unknown fields are pruned, as everywhere in Kubernetes. Knows nothing of files.
"""

from collections.abc import Mapping
from typing import Any, Final

from libs.policy.kinds import KINDS
from libs.policy.kinds.kind import Column, Kind
from libs.policy.reading import plain
from libs.policy.shapes import About, Field, Form, Rule, Shape

Data = dict[str, Any]

_TYPES: Final[Mapping[Form, str]] = {
    Form.BOOLEAN: "boolean",
    Form.INTEGER: "integer",
    Form.NUMBER: "number",
    Form.TEXT: "string",
    Form.LIST: "array",
    Form.MAP: "object",
    Form.OBJECT: "object",
    Form.OPEN: "object",
}
_UNTOLD: Final = About("")


def definitions() -> dict[str, Data]:
    """Every definition, by the name of its CRD."""
    made = [definition(kind) for kind in KINDS.values()]
    return {crd["metadata"]["name"]: crd for crd in made}


def definition(kind: Kind) -> Data:
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
                    "schema": {"openAPIV3Schema": schema(kind)},
                }
            ],
        },
    }


def schema(kind: Kind) -> Data:
    """The structural schema of its objects."""
    spec = _object(kind.spec_shape)
    spec["description"] = "What people want."
    if kind.rules:
        spec["x-kubernetes-validations"] = [_rule(rule) for rule in kind.rules]
    root: Data = {
        "description": kind.says,
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


def _column(column: Column) -> Data:
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
    words = [about.says, *([f"Deprecated: {about.deprecated}."] if about.deprecated else [])]
    made: Data = {"description": " ".join(words), **_value(field.shape, about)}
    if about.stored:
        made["default"] = plain(field.default, field.shape)
    if about.rules:
        made["x-kubernetes-validations"] = [_rule(rule) for rule in about.rules]
    return made


def _value(shape: Shape, about: About) -> Data:
    if shape.form is Form.OBJECT:
        return {**_object(shape), **({"x-kubernetes-map-type": "atomic"} if about.atomic else {})}
    if shape.form is Form.AMOUNT:
        return _amount(about)
    made: Data = {"type": _TYPES[shape.form]}
    if shape.form is Form.OPEN:
        made["x-kubernetes-preserve-unknown-fields"] = True
    if shape.form is Form.LIST and shape.below is not None:
        made["items"] = _value(shape.below, _UNTOLD)
        if about.keys:
            made["x-kubernetes-list-type"] = "map"
            made["x-kubernetes-list-map-keys"] = list(about.keys)
        else:
            made["x-kubernetes-list-type"] = "atomic"
    if shape.form is Form.MAP and shape.below is not None:
        made["additionalProperties"] = _value(shape.below, about if about.pattern else _UNTOLD)
        if about.atomic:
            made["x-kubernetes-map-type"] = "atomic"
        return made
    if shape.form is Form.TEXT:
        made |= {"enum": list(shape.words)} if shape.words else {}
        made |= {"pattern": about.pattern} if about.pattern else {}
    if shape.form is Form.INTEGER:
        made |= _numbers(about)
    return made


def _amount(about: About) -> Data:
    made: Data = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    made |= {"pattern": about.pattern} if about.pattern else {}
    return made | ({} if about.least is None else {"minimum": about.least})


def _numbers(about: About) -> Data:
    made: Data = {"format": f"int{about.bits}"}
    made |= {} if about.least is None else {"minimum": about.least}
    return made | ({} if about.most is None else {"maximum": about.most})
