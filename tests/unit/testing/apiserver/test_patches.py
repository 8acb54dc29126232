"""JSON Patch and JSON Merge Patch."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.testing.apiserver.objects.patches import json_patch, merge_patch
from libs.testing.apiserver.status import StatusError

LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "y"])
NAMES = st.sampled_from(["a", "b", "c", "a/b", "m~n"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)
FULL = st.recursive(
    st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
WITHOUT_NULLS = st.dictionaries(NAMES, FULL, max_size=3)

DOC: dict[str, Any] = {"a": {"b": [1, 2, 3]}, "m~n": {"x/y": "z"}, "n": None}


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        ({"op": "add", "value": 9}, "/a/b/1", {"a": {"b": [1, 9, 2, 3]}}),
        ({"op": "add", "value": 9}, "/a/b/-", {"a": {"b": [1, 2, 3, 9]}}),
        ({"op": "add", "value": 9}, "/a/b/3", {"a": {"b": [1, 2, 3, 9]}}),
        ({"op": "add", "value": 9}, "/a/c", {"a": {"b": [1, 2, 3], "c": 9}}),
        ({"op": "add"}, "/a", {"a": None}),
        ({"op": "remove"}, "/a/b/0", {"a": {"b": [2, 3]}}),
        ({"op": "remove"}, "/a/b/-1", {"a": {"b": [1, 2]}}),
        ({"op": "replace", "value": 0}, "/a/b/0", {"a": {"b": [0, 2, 3]}}),
        ({"op": "replace", "value": 0}, "/a/new", {"a": {"b": [1, 2, 3], "new": 0}}),
        ({"op": "replace", "value": 0}, "/m~0n/x~1y", {"m~n": {"x/y": 0}}),
        ({"op": "copy", "from": "/a/b/0"}, "/a/b/-", {"a": {"b": [1, 2, 3, 1]}}),
        ({"op": "move", "from": "/a/b/0"}, "/a/c", {"a": {"b": [2, 3], "c": 1}}),
        ({"op": "test", "value": [1, 2, 3]}, "/a/b", {}),
        ({"op": "test", "value": None}, "/gone", {}),
    ],
)
def test_an_operation(operation: dict[str, Any], path: str, expected: dict[str, Any]) -> None:
    before = copy.deepcopy(DOC)
    assert json_patch(DOC, [{**operation, "path": path}]) == {**DOC, **expected}
    assert before == DOC


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/gone"},
        {"op": "remove", "path": "/a/b/3"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "/gone/x", "value": 1},
        {"op": "add", "path": "/a/b/4", "value": 1},
        {"op": "add", "path": "/a/b/x", "value": 1},
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "replace", "path": "/a/b/3", "value": 1},
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "test", "path": "/a/b", "value": [1, 2]},
        {"op": "move", "from": "/gone", "path": "/x"},
        {"op": "copy", "path": "/x"},
        {"op": "add", "value": 1},
        {"op": "polish", "path": "/a"},
    ],
)
def test_what_does_not_apply_is_invalid(operation: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as refused:
        json_patch(DOC, [operation])
    status = refused.value
    assert (status.code, status.reason) == (422, "Invalid")
    assert status.message == "the server rejected our request due to an error in our request"
    assert status.status()["details"] == {}


@pytest.mark.parametrize("operations", [{}, ["x"], [{"op": 1, "path": "/a"}], [{"path": ["a"]}]])
def test_what_is_no_json_patch_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(StatusError, match="error decoding patch") as refused:
        json_patch(DOC, operations)
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


def test_too_many_operations_are_too_large() -> None:
    with pytest.raises(StatusError) as refused:
        json_patch({}, [{"op": "test", "path": ""}] * 10_001)
    assert (refused.value.code, refused.value.reason) == (413, "RequestEntityTooLarge")


def test_a_patch_that_fails_late_changes_nothing() -> None:
    doc = {"a": [1]}
    with pytest.raises(StatusError):
        json_patch(doc, [{"op": "add", "path": "/a/-", "value": 2}, {"op": "remove", "path": "/x"}])
    assert doc == {"a": [1]}


@settings(deadline=None)
@given(OBJECTS, NAMES, VALUES)
def test_what_was_added_is_there_and_can_be_taken_out_again(
    doc: dict[str, Any], name: str, value: Any
) -> None:
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    patched = json_patch(
        doc,
        [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}],
    )
    assert patched == {**doc, name: value}
    left = json_patch(patched, [{"op": "remove", "path": path}])
    assert left == {key: held for key, held in doc.items() if key != name}


def by_the_book(target: Any, patch: Any) -> Any:
    """The pseudo-code of RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result: dict[str, Any] = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = by_the_book(result.get(name), value)
    return result


def nulls_in_lists(value: Any, *, inside: bool = False) -> bool:
    if isinstance(value, list):
        return any(nulls_in_lists(item, inside=True) for item in value)
    if isinstance(value, dict):
        return any(
            (inside and v is None) or nulls_in_lists(v, inside=inside) for v in value.values()
        )
    return False


@settings(deadline=None)
@given(OBJECTS, OBJECTS.filter(lambda patch: not nulls_in_lists(patch)))
def test_a_merge_patch_does_what_the_rfc_says(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((doc, patch))
    patched = merge_patch(doc, patch)
    assert patched == by_the_book(doc, patch)
    assert merge_patch(patched, patch) == patched
    assert (doc, patch) == before


@settings(deadline=None)
@given(WITHOUT_NULLS, WITHOUT_NULLS)
def test_some_merge_patch_leads_from_any_object_to_any_other(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    def way(source: dict[str, Any], goal: dict[str, Any]) -> dict[str, Any]:
        patch: dict[str, Any] = {name: None for name in source if name not in goal}
        for name, value in goal.items():
            held = source.get(name)
            if isinstance(held, dict) and isinstance(value, dict):
                patch[name] = way(held, value)
            else:
                patch[name] = value
        return patch

    assert merge_patch(one, way(one, other)) == other


def test_a_null_inside_what_a_merge_patch_adds_is_left_out() -> None:
    assert merge_patch({}, {"a": {"b": None, "c": 1}}) == {"a": {"c": 1}}
    assert merge_patch({"a": 1}, {"a": [{"b": None}]}) == {"a": [{}]}
    # What takes the place of a map is taken as it is.
    assert merge_patch({"a": {"x": 1}}, {"a": [{"b": None}]}) == {"a": [{"b": None}]}


def test_a_merge_patch_must_be_an_object() -> None:
    patch: Any = []
    with pytest.raises(StatusError) as refused:
        merge_patch({}, patch)
    assert refused.value.code == 400
