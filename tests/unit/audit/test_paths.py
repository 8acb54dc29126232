"""Parsing paths, and setting values by path."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.paths import (
    annotation_path,
    label_path,
    leaves,
    metadata_key,
    segments,
    set_path,
)
from libs.kube.changes import changed_paths

KEYS = st.sampled_from(["a", "b-c", "sluice.dev/x", 'say "hi"', "in[1]", "x=y", "p,q", "sp ace"])
LEAVES = st.one_of(st.integers(0, 9), st.booleans(), st.text(max_size=3), st.just(["p", "q"]))
VALUES = st.text(alphabet='ab/.",]=[ ', min_size=1, max_size=4)


@st.composite
def lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(VALUES, unique=True, min_size=1, max_size=3))
    return [{"name": name, "value": draw(st.integers(0, 9))} for name in names]


TREES = st.recursive(
    st.dictionaries(KEYS, st.one_of(LEAVES, lists()), min_size=1, max_size=3),
    lambda below: st.dictionaries(KEYS, st.one_of(LEAVES, below), min_size=1, max_size=3),
    max_leaves=8,
)


def _normal(value: Any) -> Any:
    """Ignore the order of list items, which paths do not contain."""
    if isinstance(value, dict):
        return {key: _normal(below) for key, below in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sorted((_normal(item) for item in value), key=lambda item: item["name"])
    return value


@given(TREES, TREES)
def test_set_path_builds_an_object_from_its_changes(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    manifest = copy.deepcopy(before)
    for path, (_, value) in changed_paths(before, after).items():
        set_path(manifest, path, value)
    assert _normal(manifest) == _normal(after)


@given(TREES)
def test_removing_every_path_leaves_an_empty_object(before: dict[str, Any]) -> None:
    manifest = copy.deepcopy(before)
    for path in changed_paths(before, None):
        set_path(manifest, path, None)
    assert manifest == {}


def test_a_path_is_split_into_names_and_keys_of_list_items() -> None:
    assert segments("status.conditions[type=Ready].status") == (
        "status",
        "conditions",
        (("type", "Ready"),),
        "status",
    )
    assert segments('spec.taints[key=node.kubernetes.io/x,effect="a b"].value')[2] == (
        ("key", "node.kubernetes.io/x"),
        ("effect", "a b"),
    )


def test_labels_and_annotations_have_paths_from_which_their_keys_are_read() -> None:
    tree = {"metadata": {"labels": {"sluice.dev/driver": "x"}, "annotations": {"a/b": "y"}}}
    paths = list(changed_paths(None, tree))
    assert paths == [label_path("sluice.dev/driver"), annotation_path("a/b")]
    assert [path for path, _ in leaves(tree)] == paths
    assert metadata_key(paths[0]) == ("labels", "sluice.dev/driver")
    assert metadata_key(paths[1]) == ("annotations", "a/b")
    assert metadata_key("metadata.labels.plain") == ("labels", "plain")
    assert metadata_key("spec.unschedulable") is None
    assert metadata_key("metadata.name") is None
    assert metadata_key("metadata.labels") is None
    assert metadata_key("spec.labels.plain") is None
    assert metadata_key("metadata.finalizers.plain") is None


def test_an_item_of_a_list_stays_until_its_identity_is_removed() -> None:
    manifest = {"spec": {"taints": [{"key": "a", "value": "x"}]}}
    set_path(manifest, "spec.taints[key=a].value", None)
    assert manifest == {"spec": {"taints": [{"key": "a"}]}}
    set_path(manifest, "spec.taints[key=a].key", None)
    assert manifest == {}
