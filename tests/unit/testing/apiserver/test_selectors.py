"""Label, field and node selectors, and tolerations."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.testing.apiserver.objects.selectors import (
    field_selector,
    from_object,
    label_selector,
    node_affinity,
    tolerates,
)
from libs.testing.apiserver.status import StatusError

LABELS = {"pool": "a", "size": "12", "nvidia.com/gpu": "", "x": "y"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("pool", True),
        ("!pool", False),
        ("!gone", True),
        ("pool=a", True),
        ("pool == a", True),
        ("pool!=a", False),
        ("gone!=a", True),
        ("pool in (a, b)", True),
        ("pool in (b)", False),
        ("pool notin (b,c)", True),
        ("gone notin (a)", True),
        ("gone in ()", False),
        ("nvidia.com/gpu in ()", True),
        ("nvidia.com/gpu=", True),
        ("nvidia.com/gpu", True),
        ("pool in (,a)", True),
        ("size>11", True),
        ("size<12", False),
        ("pool>1", False),
        ("pool=a,!gone,size", True),
        ("pool=a,gone", False),
        (" pool = a , x in ( y ) ", True),
    ],
)
def test_a_query_for_labels(text: str, selected: bool) -> None:
    assert label_selector(text)(LABELS) is selected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("pool=a,", "found '', expected: identifier after ','"),
        ("pool=a b", "found 'b', expected: ',' or 'end of string'"),
        ("pool in a", "unable to parse requirement: found 'a' expected: '('"),
        ("pool in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("pool is a", "unable to parse requirement: found 'is', expected: in, notin, =, ==, !="),
        ("pool=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("-a", 'unable to parse requirement: <nil>: Invalid value: "-a"'),
        ("a=-", 'unable to parse requirement: values[0][a]: Invalid value: "-"'),
        ("a>b", 'unable to parse requirement: values[0]: Invalid value: "b"'),
    ],
)
def test_a_query_that_is_none_is_a_bad_request(text: str, words: str) -> None:
    with pytest.raises(StatusError) as refused:
        label_selector(text)
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    assert refused.value.message.startswith(words)


def test_a_selector_in_an_object() -> None:
    assert not from_object(None)(LABELS)
    assert from_object({})(LABELS)
    assert from_object({"matchLabels": {"pool": "a"}})(LABELS)
    assert not from_object({"matchLabels": {"pool": "b"}})(LABELS)
    several = [
        {"key": "pool", "operator": "In", "values": ["a", "b"]},
        {"key": "gone", "operator": "DoesNotExist"},
        {"key": "x", "operator": "NotIn", "values": ["z"]},
        {"key": "size", "operator": "Exists"},
    ]
    assert from_object({"matchExpressions": several})(LABELS)
    without = {key: value for key, value in LABELS.items() if key != "size"}
    assert not from_object({"matchExpressions": several})(without)


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a", "operator": "Gt", "values": ["1"]},
        {"key": "a", "operator": ""},
    ],
)
def test_an_expression_that_is_none_is_invalid(expression: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as refused:
        from_object({"matchExpressions": [expression]})
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")


VALUES = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["", "x", "y"]))


@settings(deadline=None)
@given(VALUES, st.sampled_from("ab"), st.lists(st.sampled_from("xyz"), min_size=1, unique=True))
def test_the_two_forms_say_the_same(labels: dict[str, str], key: str, values: list[str]) -> None:
    for word, operator in (("in", "In"), ("notin", "NotIn")):
        query = label_selector(f"{key} {word} ({','.join(values)})")
        expression = {"key": key, "operator": operator, "values": values}
        assert query(labels) == from_object({"matchExpressions": [expression]})(labels)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=", False),
        ("spec.nodeName!=", True),
        ("spec.nodeName=n1,metadata.name=p", True),
        ("spec.nodeName=n1,metadata.name=q", False),
        (r"metadata.name!=a\,b", True),
    ],
)
def test_a_query_for_fields(text: str, selected: bool) -> None:
    fields = {"spec.nodeName": "n1", "metadata.name": "p"}
    assert field_selector(text, supported=fields)(lambda path: fields[path]) is selected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("spec.colour=red", "field label not supported: spec.colour"),
        ("spec.nodeName", "invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'"),
        ("spec.nodeName=a=b", "invalid field selector: unescaped character in value: ="),
        ("spec.nodeName=\\x", "invalid field selector: invalid escape sequence: \\x"),
    ],
)
def test_an_impossible_query_for_fields_is_a_bad_request(text: str, words: str) -> None:
    with pytest.raises(StatusError) as refused:
        field_selector(text, supported=["spec.nodeName"])
    assert (refused.value.code, refused.value.message) == (400, words)


NODE = {"metadata": {"name": "n1", "labels": LABELS}}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def by_label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"pool": "a"}}, True),
        ({"nodeSelector": {"pool": "b"}}, False),
        (affinity(), False),
        (affinity({}), False),
        (affinity(by_label("pool", "In", "a")), True),
        (affinity(by_label("pool", "NotIn", "a")), False),
        (affinity(by_label("pool", "NotIn", "a"), by_label("x", "Exists")), True),
        (affinity(by_label("gone", "DoesNotExist")), True),
        (affinity(by_label("size", "Gt", "11")), True),
        (affinity(by_label("size", "Lt", "12")), False),
        (affinity(by_label("pool", "Gt", "1")), False),
        (
            affinity(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ),
            True,
        ),
        (
            affinity(
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
            ),
            False,
        ),
        ({**affinity(by_label("pool", "In", "a")), "nodeSelector": {"x": "z"}}, False),
        ({"affinity": {"podAntiAffinity": {}}}, True),
    ],
)
def test_where_a_pod_may_run(spec: dict[str, Any], fits: bool) -> None:
    assert node_affinity(spec, NODE) is fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_what_a_toleration_is_for(toleration: dict[str, Any], fits: bool) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert tolerates({"tolerations": [{"key": "z"}, toleration]}, taint) is fits
    assert not tolerates({}, taint)
