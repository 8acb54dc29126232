"""Custom kinds, as their owners describe them."""

import msgspec

from libs.kube.custom_resources import CustomObject, custom_resource, custom_resources
from libs.policy.kinds import GPU_CLUSTER, NODE_SELECTING_KINDS, POLICY_KINDS
from libs.policy.kinds.rollout import ROLLOUT


def test_a_kind_is_found_where_its_owner_says() -> None:
    resource = custom_resource(GPU_CLUSTER, CustomObject)
    assert resource.path(name="a") == "/apis/nvidia.com/v1alpha1/gpuclusters/a"
    assert (resource.kind, resource.is_custom, resource.view) == ("GPUCluster", True, CustomObject)


def test_several_are_found_by_name() -> None:
    assert list(custom_resources(NODE_SELECTING_KINDS, CustomObject)) == [
        "ClusterPolicy",
        "NVIDIADriver",
        "GPUClusterPolicy",
    ]
    assert POLICY_KINDS[:3] == NODE_SELECTING_KINDS
    assert ROLLOUT not in POLICY_KINDS


def test_of_what_is_written_the_wish_is_kept_and_not_by_which_hands() -> None:
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    whole = {"metadata": {"name": "a", "managedFields": [entry]}, "spec": {"x": [1]}}
    read = msgspec.json.decode(msgspec.json.encode(whole), type=CustomObject)
    assert (read.metadata.name, read.spec, read.metadata.managed_fields) == ("a", {"x": [1]}, ())
