"""Custom kinds, as their owners describe them."""

import msgspec

from libs.kube.resources import CustomObject, custom_resource, custom_resources
from libs.policy.kinds import GPU_CLUSTER, NODE_SELECTING_KINDS, POLICY_KINDS
from libs.policy.kinds.rollout import ROLLOUT


def test_a_custom_resource_has_the_path_of_its_kind() -> None:
    resource = custom_resource(GPU_CLUSTER, CustomObject)
    assert resource.path(name="a") == "/apis/nvidia.com/v1alpha1/gpuclusters/a"
    assert (resource.kind, resource.is_custom, resource.view) == ("GPUCluster", True, CustomObject)


def test_custom_resources_by_name() -> None:
    assert list(custom_resources(NODE_SELECTING_KINDS, CustomObject)) == [
        "ClusterPolicy",
        "NVIDIADriver",
        "GPUClusterPolicy",
    ]
    assert POLICY_KINDS[:3] == NODE_SELECTING_KINDS
    assert ROLLOUT not in POLICY_KINDS


def test_managed_fields_are_dropped_and_the_spec_kept() -> None:
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    whole = {"metadata": {"name": "a", "managedFields": [entry]}, "spec": {"x": [1]}}
    read = msgspec.json.decode(msgspec.json.encode(whole), type=CustomObject)
    assert (read.metadata.name, read.spec, read.metadata.managed_fields) == ("a", {"x": [1]}, ())
