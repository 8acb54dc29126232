"""What a schema must be like."""

from typing import Any

import pytest

from libs.testing.apiserver.schemas.schema import structural_schema
from libs.testing.apiserver.status import StatusError

Object = dict[str, Any]


def of(**fields: Any) -> Object:
    spec = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"spec": spec}}


WITH_BOTH = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "properties": {"a": {"type": "string"}},
}
NO_PATTERN = (
    'Invalid value: "(": must be a valid regular expression, but isn\'t: missing ), unterminated '
    "subpattern at position 0"
)
KEYLESS = {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}


@pytest.mark.parametrize(
    ("field", "where", "message"),
    [
        ({}, "type", "Required value: must not be empty for specified object fields"),
        ({"type": "array"}, "items", "Required value: must be specified"),
        (
            {"type": "array", "items": {}},
            "items.type",
            "Required value: must not be empty for specified array items",
        ),
        (
            {"type": "string", "oneOf": [{"type": "string"}]},
            "oneOf[0].type",
            "Forbidden: must be empty to be structural",
        ),
        ({"$ref": "y", "type": "string"}, "$ref", "Forbidden: $ref is not supported"),
        (
            {"type": "string", "pattern": "("},
            "pattern",
            NO_PATTERN,
        ),
        (
            {"type": "integer", "default": "a"},
            "default",
            'Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            WITH_BOTH,
            "additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            KEYLESS,
            "x-kubernetes-list-map-keys",
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
    ],
)
def test_what_is_not_structural_is_refused(field: Object, where: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        structural_schema(of(x=field))
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    [cause] = refused.value.causes
    place = "spec.validation.openAPIV3Schema.properties[spec].properties[x]"
    assert (cause["field"], cause["message"]) == (f"{place}.{where}", message)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "Required value: must not be empty at the root"),
        ({"type": "string"}, 'Invalid value: "string": must be object at the root'),
    ],
)
def test_the_root_is_an_object(schema: Object, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        structural_schema(schema, where="here")
    [cause] = refused.value.causes
    assert (cause["field"], cause["message"]) == ("here.type", message)
