"""Rules of a schema: predicates beside their texts."""

from collections.abc import Mapping
from typing import Any

import pytest

from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.schemas.schema import structural_schema

Object = dict[str, Any]


def of(**fields: Any) -> Object:
    spec = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"spec": spec}}


def thing(**spec: Any) -> Object:
    return {"apiVersion": "a/v1", "kind": "T", "metadata": {"name": "t"}, "spec": spec}


RULED = of(pool={"type": "string"}, size={"type": "integer", "maximum": 9})
RULED["properties"]["spec"]["x-kubernetes-validations"] = [
    {"rule": "self.pool == oldSelf.pool", "message": "the pool is fixed"},
    {"rule": "self.size > 0"},
]
RULES: Mapping[str, Predicate] = {
    "self.pool == oldSelf.pool": lambda new, old: new["pool"] == old["pool"],
    "self.size > 0": lambda new, old: new["size"] > 0,
}


def test_a_rule_is_asked_by_its_text() -> None:
    schema = structural_schema(RULED, rules=RULES)
    assert schema.validate(thing(pool="a", size=1)) == []
    assert schema.validate(thing(pool="a", size=0)) == [
        {
            "reason": "FieldValueInvalid",
            "field": "spec",
            "message": "Invalid value: failed rule: self.size > 0",
        }
    ]
    changed = schema.validate(thing(pool="b", size=1), thing(pool="a", size=1))
    assert [cause["message"] for cause in changed] == ["Invalid value: the pool is fixed"]


def test_rules_wait_until_the_rest_is_right() -> None:
    causes = structural_schema(RULED, rules=RULES).validate(thing(pool=1, size=0))
    assert [cause["field"] for cause in causes] == ["spec.pool", "<nil>"]
    assert "some validation rules were not checked" in causes[1]["message"]
    causes = structural_schema(RULED, rules=RULES).validate(thing(pool="a", size=10))
    assert [cause["field"] for cause in causes] == ["spec.size"]


def test_a_rule_says_where_and_why() -> None:
    field = {
        "type": "string",
        "x-kubernetes-validations": [
            {"rule": "never", "message": "no", "reason": "FieldValueForbidden", "fieldPath": ".sub"}
        ],
    }
    schema = structural_schema(of(x=field), rules={"never": lambda new, old: False})
    assert schema.validate(thing(x="v")) == [
        {"reason": "FieldValueForbidden", "field": "spec.x.sub", "message": "Forbidden: no"}
    ]


def test_a_rule_without_a_predicate_is_an_error_at_once() -> None:
    with pytest.raises(LookupError, match=r"self\.size > 0"):
        structural_schema(RULED, rules={"self.pool == oldSelf.pool": lambda new, old: True})
