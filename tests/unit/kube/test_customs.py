"""Custom kinds, as their owners describe them."""

import msgspec

from libs.kube.customs import Written, custom, customs
from libs.policy.kinds import GPU_CLUSTER, SELECTING, WISHES
from libs.policy.kinds.rollout import ROLLOUT


def test_a_kind_is_found_where_its_owner_says() -> None:
    resource = custom(GPU_CLUSTER, Written)
    assert resource.path(name="a") == "/apis/nvidia.com/v1alpha1/gpuclusters/a"
    assert (resource.kind, resource.custom, resource.view) == ("GPUCluster", True, Written)


def test_several_are_found_by_name() -> None:
    assert list(customs(SELECTING, Written)) == [
        "ClusterPolicy",
        "NVIDIADriver",
        "GPUClusterPolicy",
    ]
    assert WISHES[:3] == SELECTING
    assert ROLLOUT not in WISHES


def test_of_what_is_written_the_wish_is_kept_and_not_by_which_hands() -> None:
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    whole = {"metadata": {"name": "a", "managedFields": [entry]}, "spec": {"x": [1]}}
    read = msgspec.json.decode(msgspec.json.encode(whole), type=Written)
    assert (read.metadata.name, read.spec, read.metadata.managed_fields) == ("a", {"x": [1]}, ())
