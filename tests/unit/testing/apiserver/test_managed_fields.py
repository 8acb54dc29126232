"""What creates, puts and patches do to managedFields."""

import copy
from typing import Any

import pytest

from libs.testing.apiserver.objects.managed_fields import track
from libs.testing.apiserver.objects.shapes import MergeShape, builtin, from_schema

NODE = builtin("Node")
WIDGET = from_schema(
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
)


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def write(
    before: dict[str, Any] | None,
    after: dict[str, Any],
    manager: str,
    *,
    second: int = 0,
    subresource: str = "",
    shape: MergeShape = NODE,
) -> dict[str, Any]:
    kept = copy.deepcopy((before, after))
    result = track(
        before,
        after,
        manager=manager,
        api_version="v1",
        subresource=subresource,
        time=at(second),
        shape=shape,
    )
    assert kept == (before, after)
    return result


def node(**spec: Any) -> dict[str, Any]:
    meta = {"name": "n", "uid": "u"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def entries(obj: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    managed = obj["metadata"].get("managedFields", [])
    return [(entry["manager"], entry["fieldsV1"], entry["time"]) for entry in managed]


def with_spec(obj: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**obj, "spec": {**obj["spec"], **spec}}


def labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def test_a_create_owns_all_but_what_the_server_owns() -> None:
    made = write(None, labelled(node(unschedulable=True), a="1"), "kubectl")
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": "v1",
            "time": at(0),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:unschedulable": {}},
            },
        }
    ]


def test_a_new_structure_of_a_custom_resource_is_owned_itself() -> None:
    made = write(None, {"metadata": {"name": "w"}, "spec": {"a": {"b": 1}}}, "m", shape=WIDGET)
    assert entries(made)[0][1] == {"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}}}


def test_whoever_changes_a_value_takes_it_from_the_other() -> None:
    made = write(None, node(unschedulable=True, providerID="p"), "one")
    after = write(made, with_spec(made, providerID="q"), "two", second=5)
    assert entries(after) == [
        ("one", {"f:spec": {"f:unschedulable": {}}}, at(0)),
        ("two", {"f:spec": {"f:providerID": {}}}, at(5)),
    ]


def test_an_entry_that_has_nothing_left_goes() -> None:
    made = write(None, node(providerID="p"), "one")
    after = write(made, with_spec(made, providerID="q"), "two", second=5)
    assert [name for name, _, _ in entries(after)] == ["two"]


def test_what_is_removed_has_no_owner_and_moves_no_time() -> None:
    made = write(None, node(unschedulable=True, providerID="p"), "one")
    gone = copy.deepcopy(made)
    del gone["spec"]["unschedulable"]
    assert entries(write(made, gone, "two", second=5)) == [
        ("one", {"f:spec": {"f:providerID": {}}}, at(0))
    ]


def test_nothing_changed_means_no_entry_and_no_time() -> None:
    made = write(None, labelled(node(providerID="p"), a="1"), "one")
    for manager in ("one", "two"):
        assert write(made, copy.deepcopy(made), manager, second=9) == made


def test_more_of_the_same_manager_joins_its_entry_with_the_new_time() -> None:
    made = write(None, node(providerID="p"), "one")
    after = write(made, with_spec(made, unschedulable=True), "one", second=7)
    owned = {"f:spec": {"f:providerID": {}, "f:unschedulable": {}}}
    assert entries(after) == [("one", owned, at(7))]


def test_a_subresource_has_an_entry_of_its_own() -> None:
    made = write(None, node(providerID="p"), "kubelet")
    condition = {"type": "Ready", "status": "True"}
    status = {**made["status"], "conditions": [condition]}
    after = write(made, {**made, "status": status}, "kubelet", second=1, subresource="status")
    first, second = after["metadata"]["managedFields"]
    assert "subresource" not in first
    assert second["subresource"] == "status"
    names = ("f:lastHeartbeatTime", "f:lastTransitionTime", "f:status", "f:type")
    ready = {".": {}, **{name: {} for name in names}}
    conditions = {".": {}, 'k:{"type":"Ready"}': ready}
    assert second["fieldsV1"] == {"f:status": {"f:conditions": conditions}}


def test_only_the_changed_field_of_a_list_item_moves() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True", "reason": "a"}]}
    made = write(None, {**node(), "status": status}, "one")
    changed = copy.deepcopy(made)
    changed["status"]["conditions"][0]["status"] = "False"
    after = write(made, changed, "two", second=1)
    path = ("f:status", "f:conditions", 'k:{"type":"Ready"}')
    one, two = [fields for _, fields, _ in entries(after)]
    for step in path:
        one, two = one[step], two[step]
    assert two == {"f:status": {}}
    assert "f:status" not in one
    assert "f:reason" in one


def test_values_of_a_set_have_owners_and_a_list_with_one_owner_has_one() -> None:
    made = write(None, node(podCIDRs=["b", "a"], taints=[{"key": "k", "effect": "e"}]), "one")
    assert entries(made)[0][1] == {
        "f:spec": {"f:podCIDRs": {".": {}, 'v:"a"': {}, 'v:"b"': {}}, "f:taints": {}}
    }
    assert list(entries(made)[0][1]["f:spec"]["f:podCIDRs"]) == [".", 'v:"a"', 'v:"b"']


@pytest.mark.parametrize("cleared", [[], [{}]])
def test_a_person_may_clear_the_owners_and_then_none_are_kept(cleared: list[Any]) -> None:
    made = write(None, node(providerID="p"), "one")
    given = with_spec(made, unschedulable=True)
    given = {**given, "metadata": {**given["metadata"], "managedFields": cleared}}
    after = write(made, given, "two", second=1)
    assert "managedFields" not in after["metadata"]
    later = write(after, with_spec(after, providerID="q"), "three", second=2)
    assert "managedFields" not in later["metadata"]


def test_clearing_through_a_subresource_does_nothing() -> None:
    made = write(None, node(providerID="p"), "one")
    given = {**made, "metadata": {**made["metadata"], "managedFields": []}}
    assert write(made, given, "two", second=1, subresource="status") == made


@pytest.mark.parametrize("nonsense", [None, [{"manager": "m", "operation": "Dance"}]])
def test_owners_that_are_none_are_ignored(nonsense: Any) -> None:
    made = write(None, node(providerID="p"), "one")
    given = {**made, "metadata": {**made["metadata"], "managedFields": nonsense}}
    assert write(made, given, "two", second=1) == made


def test_a_person_may_edit_the_owners() -> None:
    made = write(None, node(providerID="p"), "one")
    edited = [{**made["metadata"]["managedFields"][0], "manager": "other"}]
    given = {**made, "metadata": {**made["metadata"], "managedFields": edited}}
    assert [name for name, _, _ in entries(write(made, given, "two"))] == ["other"]


def test_the_eleventh_updater_sends_the_oldest_under_one_name() -> None:
    held = write(None, node(providerID="p"), "m00")
    for second in range(1, 13):
        more = {**held["metadata"].get("labels", {}), f"l{second}": "x"}
        held = write(held, labelled(held, **more), f"m{second:02}", second=second)
    names = [name for name, _, _ in entries(held)]
    assert names == ["ancient-changes", *(f"m{number:02}" for number in range(4, 13))]
    ancient = entries(held)[0]
    assert ancient[1]["f:spec"] == {"f:providerID": {}}
    assert set(ancient[1]["f:metadata"]["f:labels"]) == {".", "f:l1", "f:l2", "f:l3"}
    assert ancient[2] == at(3)


def test_items_that_share_a_key_are_owned_together() -> None:
    twice = [{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}]
    made = write(None, {**node(), "status": {"conditions": twice}}, "one")
    conditions = entries(made)[0][1]["f:status"]["f:conditions"]
    assert conditions == {".": {}, 'k:{"type":"Ready"}': {}}
    once = {**made, "status": {**made["status"], "conditions": twice[:1]}}
    after = write(made, once, "two", second=1)
    [fields] = [owned for name, owned, _ in entries(after) if name == "two"]
    assert "f:type" in fields["f:status"]["f:conditions"]['k:{"type":"Ready"}']


def test_what_has_no_key_leaves_the_owners_as_they_are() -> None:
    made = write(None, node(providerID="p"), "one")
    keyless = {**made, "status": {**made["status"], "addresses": ["10.0.0.1"]}}
    after = write(made, keyless, "two", second=1)
    assert after["metadata"]["managedFields"] == made["metadata"]["managedFields"]
    assert after["status"]["addresses"] == ["10.0.0.1"]


def test_true_is_not_one_where_anything_may_be() -> None:
    made = write(None, {"metadata": {"name": "w"}, "spec": {"a": 1}}, "one", shape=WIDGET)
    changed = {**made, "spec": {"a": True}}
    assert entries(write(made, changed, "two", shape=WIDGET))[1][1] == {"f:spec": {"f:a": {}}}
