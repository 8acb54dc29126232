"""Server-side apply: owners, conflicts, and what is taken out again."""

import copy
from typing import Any

import pytest

from libs.testing.apiserver.objects.apply import apply
from libs.testing.apiserver.objects.managed_fields import track
from libs.testing.apiserver.objects.shapes import MergeShape, builtin, from_schema
from libs.testing.apiserver.status import StatusError

NODE = builtin("Node")
Object = dict[str, Any]


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def want(**parts: Any) -> Object:
    meta = {"name": "n", **parts.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, **parts}


def applied(
    live: Object | None,
    wanted: Object,
    manager: str = "us",
    *,
    force: bool = False,
    second: int = 1,
    subresource: str = "",
    shape: MergeShape = NODE,
) -> Object:
    kept = copy.deepcopy((live, wanted))
    result = apply(
        live,
        wanted,
        manager=manager,
        force=force,
        api_version="v1",
        subresource=subresource,
        time=at(second),
        shape=shape,
    )
    assert kept == (live, wanted)
    return result


def put(live: Object | None, new: Object, manager: str = "kubectl", second: int = 0) -> Object:
    return track(
        live,
        new,
        manager=manager,
        api_version="v1",
        subresource="",
        time=at(second),
        shape=NODE,
    )


def owned(obj: Object, manager: str) -> Object:
    managed = obj["metadata"].get("managedFields", [])
    found = [entry["fieldsV1"] for entry in managed if entry["manager"] == manager]
    return found[0] if found else {}


def cordoned(live: Object, by: str, second: int = 3) -> Object:
    return put(live, {**live, "spec": {**live["spec"], "unschedulable": True}}, by, second)


LIVE = put(
    None, want(metadata={"uid": "u", "resourceVersion": "7", "labels": {"a": "1"}}), "kubelet"
)


def test_an_apply_owns_exactly_what_it_says() -> None:
    result = applied(LIVE, want(metadata={"labels": {"b": "2"}}, spec={"unschedulable": True}))
    assert result["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert result["spec"] == {"unschedulable": True}
    assert owned(result, "us") == {
        "f:metadata": {"f:labels": {"f:b": {}}},
        "f:spec": {"f:unschedulable": {}},
    }
    assert owned(result, "kubelet") == owned(LIVE, "kubelet")


def test_an_apply_of_nothing_that_is_there_creates() -> None:
    made = applied(None, want(metadata={"labels": {"b": "2"}}))
    [entry] = made["metadata"]["managedFields"]
    assert (entry["operation"], entry["time"]) == ("Apply", at(1))
    assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {"f:b": {}}}}
    assert made["status"]["nodeInfo"]["bootID"] == ""


def test_an_unchanged_apply_returns_the_very_object() -> None:
    wanted = want(metadata={"labels": {"b": "2"}}, spec={"unschedulable": True, "taints": []})
    result = applied(LIVE, wanted)
    assert applied(result, wanted, second=9) is result


def test_applies_stand_before_updates_and_then_by_time() -> None:
    result = applied(LIVE, want(spec={"providerID": "p"}), "late", second=5)
    result = applied(result, want(spec={"podCIDR": "c"}), "early", second=4)
    result = cordoned(result, "person", 9)
    names = [entry["manager"] for entry in result["metadata"]["managedFields"]]
    assert names == ["early", "late", "kubelet", "person"]


def test_another_value_is_a_conflict_in_the_words_of_the_server() -> None:
    live = cordoned(LIVE, "kubectl-cordon")
    with pytest.raises(StatusError) as refused:
        applied(live, want(spec={"unschedulable": False}))
    conflict = refused.value
    assert (conflict.code, conflict.reason) == (409, "Conflict")
    assert conflict.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-cordon" using v1: .spec.unschedulable'
    )
    assert conflict.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-cordon" using v1',
            "field": ".spec.unschedulable",
        }
    ]


def test_several_conflicts_are_told_by_manager() -> None:
    live = applied(LIVE, want(spec={"providerID": "p"}), "other")
    conditions = [{"type": "Ready", "status": "True"}]
    live = track(
        live,
        {**live, "status": {**live["status"], "conditions": conditions}},
        manager="kubelet",
        api_version="v1",
        subresource="status",
        time=at(2),
        shape=NODE,
    )
    with pytest.raises(StatusError) as refused:
        applied(
            live,
            want(
                metadata={"labels": {"a": "9"}},
                spec={"providerID": "q"},
                status={"conditions": [{"type": "Ready", "status": "False"}]},
            ),
        )
    assert refused.value.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "kubelet" with subresource "status" using v1:\n'
        '- .status.conditions[type="Ready"].status\n'
        'conflicts with "kubelet" using v1:\n- .metadata.labels.a\n'
        'conflicts with "other":\n- .spec.providerID'
    )
    assert [cause["field"] for cause in refused.value.causes] == [
        '.status.conditions[type="Ready"].status',
        ".metadata.labels.a",
        ".spec.providerID",
    ]


def test_force_takes_the_field_from_the_other() -> None:
    result = applied(LIVE, want(metadata={"labels": {"a": "9"}}), force=True)
    assert result["metadata"]["labels"] == {"a": "9"}
    assert owned(result, "us") == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert owned(result, "kubelet") == {"f:metadata": {"f:labels": {}}}


def test_the_same_value_is_shared() -> None:
    result = applied(LIVE, want(metadata={"labels": {"a": "1"}}))
    assert owned(result, "kubelet") == owned(LIVE, "kubelet")
    assert owned(result, "us") == {"f:metadata": {"f:labels": {"f:a": {}}}}
    [entry] = [e for e in result["metadata"]["managedFields"] if e["manager"] == "us"]
    assert "time" not in entry, "an entry that changed nothing has no time"


def test_what_we_alone_own_goes_when_we_drop_it() -> None:
    live = applied(LIVE, want(metadata={"labels": {"b": "2"}}, spec={"unschedulable": True}))
    result = applied(live, want(metadata={"labels": {"b": "2"}}), second=2)
    assert "unschedulable" not in result["spec"]
    assert result["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert owned(result, "us") == {"f:metadata": {"f:labels": {"f:b": {}}}}


def test_a_cordon_that_a_person_made_first_stays_when_we_drop_ours() -> None:
    live = applied(cordoned(LIVE, "person"), want(spec={"unschedulable": True}), force=True)
    result = applied(live, want(), second=4)
    assert result["spec"] == {"unschedulable": True}
    assert owned(result, "us") == {}


def test_a_cordon_that_a_person_renewed_midway_stays_when_we_drop_ours() -> None:
    live = applied(LIVE, want(spec={"unschedulable": True}))
    live = put(live, {**live, "spec": {}}, "person", 2)
    assert owned(live, "us") == {}
    result = applied(cordoned(live, "person"), want(), second=4)
    assert result["spec"] == {"unschedulable": True}


def test_a_label_edited_by_a_person_is_a_conflict_until_forced() -> None:
    wanted = want(metadata={"labels": {"state": "done"}})
    live = applied(LIVE, wanted)
    edited = copy.deepcopy(live)
    edited["metadata"]["labels"]["state"] = "edited"
    edited = put(live, edited, "person", 3)
    for _ in range(2):
        with pytest.raises(StatusError, match='conflict with "person" using v1'):
            applied(edited, wanted)
    forced = applied(edited, wanted, force=True, second=5)
    assert forced["metadata"]["labels"]["state"] == "done"
    assert owned(forced, "person") == {}


def test_what_others_set_is_not_removed_by_leaving_it_out() -> None:
    live = applied(LIVE, want(metadata={"labels": {"a": ""}}), force=True)
    assert live["metadata"]["labels"] == {"a": ""}
    result = applied(live, want(), second=2)
    assert "labels" not in result["metadata"]


def test_items_of_a_list_by_key_have_owners_of_their_own() -> None:
    first = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
    live = applied(LIVE, want(status={"conditions": first}), "one")
    second = [{"type": "C", "status": "True"}, {"type": "A", "status": "True"}]
    live = applied(live, want(status={"conditions": second}), "two", second=2)
    assert [c["type"] for c in live["status"]["conditions"]] == ["C", "A", "B"]
    left = applied(live, want(status={"conditions": []}), "one", second=3)
    assert [c["type"] for c in left["status"]["conditions"]] == ["C", "A"]


def test_a_list_with_one_owner_is_a_conflict_as_a_whole() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    live = applied(LIVE, want(spec={"taints": [taint]}), "one")
    with pytest.raises(StatusError, match=r'conflict with "one": \.spec\.taints'):
        applied(live, want(spec={"taints": [taint, {"key": "b", "effect": "e"}]}), "two")
    forced = applied(live, want(spec={"taints": []}), "two", force=True)
    assert "taints" not in forced["spec"]
    assert owned(forced, "one") == {}


def test_the_guards_are_the_servers_business() -> None:
    guards = {"uid": "another", "resourceVersion": "3"}
    result = applied(LIVE, want(metadata={**guards, "labels": {"b": "2"}}))
    assert (result["metadata"]["uid"], result["metadata"]["resourceVersion"]) == ("u", "7")
    assert owned(result, "us") == {"f:metadata": {"f:labels": {"f:b": {}}}}
    made = applied(None, want(metadata=guards))
    assert not set(guards) & set(made["metadata"])


def test_an_object_without_owners_gets_one_for_what_was_there() -> None:
    bare = {**LIVE, "metadata": {k: v for k, v in LIVE["metadata"].items() if k != "managedFields"}}
    result = applied(bare, want(spec={"providerID": "p"}))
    assert owned(result, "before-first-apply") == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    with pytest.raises(StatusError, match='conflict with "before-first-apply" using v1'):
        applied(bare, want(metadata={"labels": {"a": "2"}}))


def test_a_zero_that_a_typed_server_does_not_write_is_owned_all_the_same() -> None:
    wanted = want(spec={"unschedulable": False})
    result = applied(LIVE, wanted)
    assert result["spec"] == {}
    assert owned(result, "us") == {"f:spec": {"f:unschedulable": {}}}
    assert applied(result, wanted, second=9) is result


def test_an_applied_object_has_no_owners_itself() -> None:
    for managed in ([], [{}]):
        with pytest.raises(StatusError, match="managedFields must be nil") as refused:
            applied(LIVE, want(metadata={"managedFields": managed}))
        assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"spec": {"colour": "red"}}, ".spec.colour: field not declared in schema"),
        (
            {"status": {"conditions": [{"type": "A"}, {"type": "A"}]}},
            '.status.conditions: duplicate entries for key [type="A"]',
        ),
        ({"spec": {"podCIDRs": [{}]}}, ".spec.podCIDRs: element 0: associative list without keys"),
    ],
)
def test_what_does_not_fit_is_an_error_of_the_server(parts: Object, words: str) -> None:
    with pytest.raises(StatusError) as refused:
        applied(LIVE, want(**parts))
    assert (refused.value.code, refused.value.reason) == (500, "")
    start = "failed to create typed patch object (/n; /v1, Kind=Node): "
    assert refused.value.message.startswith(start + words)


def test_a_live_object_that_does_not_fit_is_an_error_of_the_server() -> None:
    live = {**LIVE, "status": {**LIVE["status"], "addresses": ["10.0.0.1"]}}
    with pytest.raises(StatusError, match="failed to create typed live object") as refused:
        applied(live, want(status={"addresses": [{"type": "A", "address": "10.0.0.2"}]}))
    assert refused.value.code == 500


def test_a_custom_map_with_one_owner_changes_hands_as_a_whole() -> None:
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    record = {**numbers, "x-kubernetes-map-type": "atomic"}
    status = {"type": "object", "properties": {"flight": record, "loose": numbers}}
    shape = from_schema({"type": "object", "properties": {"status": status}})
    wanted = want(status={"flight": {"a": 1, "b": 2}, "loose": {"a": 1}})
    live = applied(None, wanted, shape=shape)
    assert owned(live, "us") == {"f:status": {"f:flight": {}, "f:loose": {"f:a": {}}}}
    with pytest.raises(StatusError, match=r'conflict with "us": \.status\.flight$'):
        applied(live, want(status={"flight": {"a": 1}, "loose": {"b": 1}}), "two", shape=shape)
