"""Pruning, defaults and validation of custom resources."""

import copy
from typing import Any

import pytest

from libs.testing.apiserver.schemas.schema import structural_schema

Object = dict[str, Any]


def of(**fields: Any) -> Object:
    spec = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"spec": spec}}


def thing(**spec: Any) -> Object:
    return {"apiVersion": "a/v1", "kind": "T", "metadata": {"name": "t"}, "spec": spec}


def told(schema: Object, **spec: Any) -> list[tuple[str, str, str]]:
    causes = structural_schema(schema).validate(thing(**spec))
    return [(cause["reason"], cause["field"], cause["message"]) for cause in causes]


def test_pruning_keeps_what_is_named_and_metadata() -> None:
    open_map = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = of(
        known={"type": "string"},
        items={
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
        map={"type": "object", "additionalProperties": {"type": "string"}},
        open={**open_map, "properties": {"inner": {"type": "object", "properties": {}}}},
        embedded={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"spec": {"type": "object"}},
        },
        bare={"type": "object"},
    )
    given = thing(
        known="k",
        unknown=1,
        items=[{"a": "x", "b": "y"}],
        map={"any": "z"},
        open={"kept": {"deep": 1}, "inner": {"gone": 1}},
        embedded={"kind": "K", "metadata": {"name": "e", "x": 1}, "spec": {"gone": 1}, "gone": 1},
        bare={"gone": 1},
    )
    given["junk"] = 1
    given["metadata"]["labels"] = {"a": "b"}
    before = copy.deepcopy(given)
    assert structural_schema(schema).prune(given) == {
        "apiVersion": "a/v1",
        "kind": "T",
        "metadata": {"name": "t", "labels": {"a": "b"}},
        "spec": {
            "known": "k",
            "items": [{"a": "x"}],
            "map": {"any": "z"},
            "open": {"kept": {"deep": 1}, "inner": {}},
            "embedded": {"kind": "K", "metadata": {"name": "e", "x": 1}, "spec": {}},
            "bare": {},
        },
    }
    assert given == before


def test_defaults_come_where_the_parent_is() -> None:
    schema = of(
        a={"type": "integer", "default": 1},
        b={"type": "object", "properties": {"c": {"type": "string", "default": "x"}}},
        d={
            "type": "object",
            "default": {},
            "properties": {"e": {"type": "boolean", "default": False}},
        },
        l={
            "type": "array",
            "items": {"type": "object", "properties": {"f": {"type": "integer", "default": 5}}},
        },
    )
    default = structural_schema(schema).default
    assert default(thing())["spec"] == {"a": 1, "d": {"e": False}}
    given = thing(a=2, b={}, d={"e": True}, l=[{}, {"f": 6}])
    assert default(given)["spec"] == {
        "a": 2,
        "b": {"c": "x"},
        "d": {"e": True},
        "l": [{"f": 5}, {"f": 6}],
    }
    bare = {"metadata": {"name": "t"}}
    assert default(bare) == bare
    assert default(default(given)) == default(given)


def test_a_null_that_may_not_be_one_is_defaulted_or_dropped() -> None:
    schema = of(
        a={"type": "integer", "default": 1},
        b={"type": "integer"},
        c={"type": "integer", "nullable": True, "default": 3},
    )
    assert structural_schema(schema).default(thing(a=None, b=None, c=None))["spec"] == {
        "a": 1,
        "c": None,
    }


TEXTS = {"type": "array", "items": {"type": "string"}}
ABOVE_TWO = {"type": "integer", "minimum": 2, "exclusiveMinimum": True}


@pytest.mark.parametrize(
    ("field", "value", "shown", "words"),
    [
        ({"type": "string"}, 1, '"integer"', 'must be of type string: "integer"'),
        ({"type": "integer"}, "1", '"string"', 'must be of type integer: "string"'),
        ({"type": "integer"}, None, '"null"', 'must be of type integer: "null"'),
        ({"type": "boolean"}, 1, '"integer"', 'must be of type boolean: "integer"'),
        (
            {"type": "string", "format": "date-time"},
            "now",
            '"now"',
            'must be of type date-time: "now"',
        ),
        (
            {"type": "string", "format": "duration"},
            "soon",
            '"soon"',
            'must be of type duration: "soon"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            '"boolean"',
            'must be of type integer,string: "boolean"',
        ),
        ({"type": "string", "pattern": "^a$"}, "b", '"b"', "should match '^a$'"),
        ({"type": "string", "pattern": "^a$"}, "a\n", '"a\\n"', "should match '^a$'"),
        ({"type": "string", "minLength": 2}, "a", '"a"', "should be at least 2 chars long"),
        ({"type": "integer", "minimum": 2}, 1, "1", "should be greater than or equal to 2"),
        (ABOVE_TWO, 2, "2", "should be greater than 2"),
        ({"type": "number", "maximum": 2.5}, 3, "3", "should be less than or equal to 2.5"),
        ({"type": "integer", "multipleOf": 3}, 4, "4", "should be a multiple of 3"),
        ({**TEXTS, "minItems": 1}, [], "0", "should have at least 1 items"),
        ({"type": "object", "minProperties": 1}, {}, "0", "should have at least 1 properties"),
    ],
)
def test_one_value_wrong(field: Object, value: Any, shown: str, words: str) -> None:
    reason = "FieldValueTypeInvalid" if "of type" in words else "FieldValueInvalid"
    message = f"Invalid value: {shown}: spec.x in body {words}"
    assert told(of(x=field), x=value) == [(reason, "spec.x", message)]


@pytest.mark.parametrize(
    ("field", "value", "reason", "message"),
    [
        (
            {"type": "string", "enum": ["a", "b"]},
            "c",
            "NotSupported",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        (
            {"type": "string", "maxLength": 2},
            "abc",
            "TooLong",
            "Too long: may not be more than 2 bytes",
        ),
        ({**TEXTS, "maxItems": 1}, ["a", "b"], "TooMany", "Too many: 2: must have at most 1 item"),
        (
            {"type": "object", "maxProperties": 0},
            {"a": 1},
            "TooMany",
            "Too many: 1: must have at most 0 items",
        ),
    ],
)
def test_one_thing_wrong(field: Object, value: Any, reason: str, message: str) -> None:
    assert told(of(x=field), x=value) == [(f"FieldValue{reason}", "spec.x", message)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 1),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00.5Z"),
        ({"type": "string", "format": "duration"}, "1h30m"),
        ({"type": "string", "format": "no-such-format"}, "x"),
        ({"type": "integer", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "5%"),
        ({"x-kubernetes-preserve-unknown-fields": True}, [{"a": None}]),
        ({"type": "integer", "format": "int32"}, -(2**31)),
    ],
)
def test_nothing_wrong(field: Object, value: Any) -> None:
    assert told(of(x=field), x=value) == []


def test_where_it_is_wrong() -> None:
    inner = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "n": {"type": "integer", "maximum": 1}},
    }
    schema = of(
        list={"type": "array", "items": inner},
        map={"type": "object", "additionalProperties": inner},
        driver={
            "type": "object",
            "required": ["version"],
            "properties": {"version": {"type": "string"}},
        },
    )
    schema["required"] = ["status"]
    found = told(schema, list=[{"name": "a", "n": 2}, {}], map={"k": {"n": "x"}}, driver={})
    assert [(reason, field) for reason, field, _ in found] == [
        ("FieldValueInvalid", "spec.list[0].n"),
        ("FieldValueRequired", "spec.list[1].name"),
        ("FieldValueTypeInvalid", "spec.map.k.n"),
        ("FieldValueRequired", "spec.map.k.name"),
        ("FieldValueRequired", "spec.driver.version"),
        ("FieldValueRequired", "status"),
    ]


def test_an_integer_must_fit_its_format() -> None:
    [(reason, field, message)] = told(of(x={"type": "integer", "format": "int32"}), x=2**31)
    assert (reason, field) == ("FieldValueInvalid", "<nil>")
    assert message == (
        'Invalid value: "": Checked value must be of type integer with format int32 in spec.x'
    )


ONE_ONLY = "must validate one and only one schema (oneOf)"


def test_alternatives() -> None:
    either = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    one = {**either, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert told(of(x=one), x={"a": "1"}) == []
    assert told(of(x=one), x={"a": "1", "b": "2"}) == [
        (
            "FieldValueInvalid",
            "<nil>",
            f'Invalid value: "": "spec.x" {ONE_ONLY}. Found 2 valid alternatives',
        )
    ]
    any_of = {**either, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert [(field, message) for _, field, message in told(of(x=any_of), x={})] == [
        ("<nil>", 'Invalid value: "": "spec.x" must validate at least one schema (anyOf)'),
        ("spec.x.a", "Required value"),
    ]
    all_of = {"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 3}]}
    assert told(of(x=all_of), x=2) == []
    assert [message for *_, message in told(of(x=all_of), x=4)] == [
        "Invalid value: 4: spec.x in body should be less than or equal to 3",
        'Invalid value: "": "spec.x" must validate all the schemas (allOf)',
    ]
    no = {"type": "string", "not": {"enum": ["bad"]}}
    assert [message for *_, message in told(of(x=no), x="bad")] == [
        'Invalid value: "": "spec.x" must not validate the schema (not)'
    ]


def test_items_that_are_there_twice() -> None:
    text = {"type": "string"}
    schema = of(
        set={"type": "array", "x-kubernetes-list-type": "set", "items": text},
        keyed={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": text}},
        },
    )
    assert told(schema, set=["a", "b", "a"], keyed=[{"name": "x"}, {"name": "x"}]) == [
        ("FieldValueDuplicate", "spec.set[2]", 'Duplicate value: "a"'),
        ("FieldValueDuplicate", "spec.keyed[1]", 'Duplicate value: {"name":"x"}'),
    ]


def test_what_an_update_did_not_touch_is_not_judged() -> None:
    schema = structural_schema(
        of(x={"type": "integer", "maximum": 1}, y={"type": "integer", "maximum": 1})
    )
    old = thing(x=5, y=0)
    assert schema.validate(thing(x=5, y=1), old) == []
    assert [c["field"] for c in schema.validate(thing(x=6, y=1), old)] == ["spec.x"]
    assert [c["field"] for c in schema.validate(thing(x=5, y=1))] == ["spec.x"]


def test_a_number_or_text_may_be_written_as_an_alternative() -> None:
    either = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    }
    assert told(of(x=either), x="a") == []
    assert told(of(x=either), x=1) == []
