"""The strategic merge patch."""

import copy
import operator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.testing.apiserver.objects.shapes import builtin
from libs.testing.apiserver.objects.strategic_merge import strategic_patch
from libs.testing.apiserver.status import StatusError

POD = builtin("Pod")


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def patched(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((obj, patch))
    result = strategic_patch(obj, patch, POD)
    assert (obj, patch) == before
    return result


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def test_items_merge_by_their_key_and_those_of_the_patch_keep_its_order() -> None:
    before = pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"})
    after = patched(before, pod({"name": "b", "image": "2"}, {"name": "c", "image": "3"}))
    assert after["spec"]["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "2"},
        {"name": "c", "image": "3"},
    ]


def test_a_list_without_a_key_is_replaced() -> None:
    before = pod(tolerations=[{"key": "a"}])
    after = patched(before, {"spec": {"tolerations": [{"key": "b"}]}})
    assert after["spec"]["tolerations"] == [{"key": "b"}]


def test_values_of_a_set_are_added_and_taken_out() -> None:
    before = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(before, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"] == [
        "c",
        "a",
        "b",
    ]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}}
    assert patched(before, gone)["metadata"]["finalizers"] == ["b"]


def test_an_item_is_deleted_by_its_key() -> None:
    after = patched(pod(*named("a", "b")), pod({"name": "a", "$patch": "delete"}))
    assert after == pod(*named("b"))


def test_a_list_or_a_map_may_be_replaced() -> None:
    after = patched(pod(*named("a", "b")), pod({"name": "c"}, {"$patch": "replace"}))
    assert after == pod(*named("c"))
    labels = {"metadata": {"labels": {"a": "1"}}}
    patch = {"metadata": {"labels": {"b": "2", "$patch": "replace"}}}
    assert patched(labels, patch) == {"metadata": {"labels": {"b": "2"}}}
    gone = {"metadata": {"labels": {"$patch": "delete"}}}
    assert patched(labels, gone) == {"metadata": {"labels": {}}}


def test_the_order_of_a_list_may_be_set() -> None:
    order = {"$setElementOrder/containers": named("c", "a", "b")}
    after = patched(pod(*named("a", "b")), {"spec": {**order, "containers": named("c")}})
    assert after["spec"]["containers"] == named("c", "a", "b")
    only_order = {"spec": {"$setElementOrder/containers": named("b", "a")}}
    assert patched(pod(*named("a", "b")), only_order) == pod(*named("b", "a"))


def test_only_some_keys_are_retained() -> None:
    before = pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}])
    volume = {"name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}
    after = patched(before, {"spec": {"volumes": [volume]}})
    assert after["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_null_takes_out_and_is_not_added() -> None:
    assert patched({"spec": {"nodeName": "n"}}, {"spec": {"nodeName": None}}) == {"spec": {}}
    assert patched({}, {"spec": {"nodeName": None, "hostname": "h"}}) == {"spec": {"hostname": "h"}}


def test_ports_of_a_service_merge_by_port_alone() -> None:
    before = {"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}}
    after = strategic_patch(
        before, {"spec": {"ports": [{"port": 80, "name": "web"}]}}, builtin("Service")
    )
    assert after["spec"]["ports"] == [{"port": 80, "protocol": "UDP", "name": "web"}]


@pytest.mark.parametrize(
    ("before", "patch", "code", "words"),
    [
        (pod(*named("a")), pod({"image": "x"}), 500, "does not contain declared merge key: name"),
        (pod(*named("a")), pod({"$patch": "delete"}), 500, "declared merge key: name"),
        ({}, {"$patch": "explode"}, 500, "unknown patch type: explode"),
        ({}, {"$retainKeys": "x"}, 400, "invalid patch format of retainKeys"),
        ({}, {"$retainKeys": ["a"], "b": 1}, 400, "invalid patch format of retainKeys"),
        ({}, {"$setElementOrder": []}, 400, "invalid patch format of setElementOrder list"),
        (
            pod(*named("a", "b")),
            {"spec": {"$setElementOrder/containers": named("a"), "containers": named("b")}},
            500,
            "doesn't match",
        ),
        ({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": [1]}}, 500, "identical"),
    ],
)
def test_refusals(before: dict[str, Any], patch: dict[str, Any], code: int, words: str) -> None:
    with pytest.raises(StatusError, match=words) as refused:
        strategic_patch(before, patch, POD)
    assert refused.value.code == code


CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abcd")}, optional={"image": st.sampled_from("xy")}
    ),
    max_size=4,
    unique_by=operator.itemgetter("name"),
)


@settings(deadline=None)
@given(CONTAINERS, CONTAINERS)
def test_a_patch_of_items_is_done_once_and_loses_nobody(
    before: list[dict[str, Any]], patch: list[dict[str, Any]]
) -> None:
    after = patched(pod(*before), pod(*patch))
    assert patched(after, pod(*patch)) == after
    held = {c["name"]: c for c in after["spec"]["containers"]}
    assert len(held) == len(after["spec"]["containers"])
    was = {c["name"]: c for c in before}
    said = {c["name"]: c for c in patch}
    assert held == {name: {**was.get(name, {}), **said.get(name, {})} for name in {**was, **said}}
    order = [name for name in held if name in said]
    assert order == list(said)
