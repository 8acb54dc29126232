"""The shapes of the built-in kinds and of custom resources."""

import pytest

from libs.testing.apiserver.objects.shapes import builtin, encoded, from_schema

KINDS = [
    "Node",
    "Pod",
    "Namespace",
    "Event",
    "ConfigMap",
    "Secret",
    "ServiceAccount",
    "Service",
    "Lease",
    "DaemonSet",
    "Deployment",
    "ReplicaSet",
    "Job",
    "ControllerRevision",
    "PodDisruptionBudget",
    "RuntimeClass",
    "CustomResourceDefinition",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "TokenReview",
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_metadata_with_owners_by_uid_and_a_set_of_finalizers(kind: str) -> None:
    meta = builtin(kind).fields["metadata"]
    assert meta.fields["ownerReferences"].keys == ("uid",)
    assert meta.fields["finalizers"].granular
    assert meta.fields["finalizers"].keys == ()
    assert meta.fields["labels"].granular


def test_an_unknown_kind_says_where_to_add_it() -> None:
    with pytest.raises(LookupError, match=r"'Gadget'.*shapes\.txt"):
        builtin("Gadget")
    with pytest.raises(LookupError, match="'Container'"):
        builtin("Container")


def test_a_list_may_have_other_keys_for_apply_than_for_a_strategic_merge() -> None:
    ports = builtin("Service").fields["spec"].fields["ports"]
    assert (ports.keys, ports.merge_key) == (("port", "protocol"), "port")
    assert ports.defaults["protocol"] == "TCP"
    containers = builtin("Pod").fields["spec"].fields["containers"]
    assert containers.element is not None
    inner = containers.element.fields["ports"]
    assert (inner.keys, inner.merge_key) == (("containerPort", "protocol"), "containerPort")


def test_taints_have_one_owner_and_are_replaced_as_a_whole() -> None:
    taints = builtin("Node").fields["spec"].fields["taints"]
    assert (taints.atomic, taints.merge_key, taints.strategies) == (True, "", frozenset())


def test_a_typed_server_drops_what_is_empty_or_unknown_and_fills_what_is_always_there() -> None:
    given = {
        "metadata": {"name": "a", "labels": {"empty": ""}, "finalizers": []},
        "spec": {"unschedulable": False, "colour": "red", "podCIDRs": []},
    }
    written = encoded(given, builtin("Node"))
    assert written["metadata"] == {"name": "a", "labels": {"empty": ""}}
    assert written["spec"] == {}
    assert written["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert written["status"]["nodeInfo"]["bootID"] == ""


def test_what_is_a_pointer_keeps_its_zero() -> None:
    spec = {"containers": [{"name": "a", "stdin": False}], "hostUsers": False, "priority": 0}
    written = encoded({"spec": spec}, builtin("Pod"))
    assert written["spec"] == {
        "containers": [{"name": "a", "resources": {}}],
        "hostUsers": False,
        "priority": 0,
    }


def test_a_time_that_was_not_said_is_null() -> None:
    node = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    [condition] = encoded(node, builtin("Node"))["status"]["conditions"]
    assert condition["lastHeartbeatTime"] is None


def test_encoding_is_done_once() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "tty": False}]}}
    shape = builtin("Pod")
    once = encoded(pod, shape)
    assert encoded(once, shape) == once
    assert encoded(once, shape, like=once) is once


def test_a_custom_resource_has_one_owner_per_list_unless_its_schema_says_otherwise() -> None:
    text = {"type": "string"}
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}},
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "plain": {"type": "array", "items": text},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
                    "keyed": keyed,
                    "map": {"type": "object", "additionalProperties": text},
                    "one": {"type": "object", "x-kubernetes-map-type": "atomic"},
                    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "either": {"x-kubernetes-int-or-string": True},
                },
            }
        },
    }
    shape = from_schema(schema)
    spec = shape.fields["spec"]
    assert [name for name, field in spec.fields.items() if field.granular] == [
        "set",
        "keyed",
        "map",
        "open",
    ]
    assert spec.fields["keyed"].defaults == {"name": "x"}
    assert spec.child("other") is None
    deep = spec.fields["open"].child("a")
    assert deep is not None
    assert deep.child("b") is deep
    assert shape.fields["metadata"].fields["finalizers"].granular
    assert encoded({"spec": {"map": {}}}, shape) == {"spec": {"map": {}}}
