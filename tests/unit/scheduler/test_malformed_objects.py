"""An object with any content is either read, or named as unreadable, alone; nothing else fails."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.kube.errors import MalformedResponse
from libs.kube.lease.record import GpuOperatorDetector
from libs.kube.reads import NamedObject, Page, decode_page
from libs.kube.resources import LEASES, Resource
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from services.discovery.cluster import resources as discovery
from services.discovery.cluster.decide import LabelPolicy, ReportedFacts, decide, label_policy
from services.scheduler import resources
from services.scheduler.snapshot.node_view import (
    NodeContext,
    driver_pod,
    is_tracked,
    node_view,
    pool_member,
    workload_pod,
)
from services.scheduler.snapshot.pod_view import is_finished, is_of_daemon_set
from services.scheduler.snapshot.pools import PolicyReader, snapshot_pools
from services.validator.cluster import proofs
from tests.unit.malformed import with_a_part_replaced
from tests.unit.policy.situations import cluster_policy

TIME = "2027-01-15T08:00:00Z"
OWNED = {
    "f:metadata": {
        "f:labels": {"f:nvidia.com/gpu-driver-upgrade-state": {}},
        "f:annotations": {"f:sluice.dev/upgrade": {}},
    },
    "f:spec": {"f:unschedulable": {}},
}
METADATA = {
    "name": "a",
    "namespace": "gpu-operator",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 1,
    "creationTimestamp": TIME,
    "labels": {"nvidia.com/gpu.present": "true", "sluice.dev/driver": "d"},
    "annotations": {"sluice.dev/upgrade": '{"v":1,"node_uid":"u","epoch":1,"token":1}'},
    "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "x", "controller": True}],
    "managedFields": [
        {
            "manager": "sluice-scheduler",
            "operation": "Apply",
            "time": TIME,
            "fieldsV1": OWNED,
        }
    ],
}
CONTAINER_STATUS = {
    "name": "nvidia-driver-ctr",
    "containerID": "containerd://ab",
    "restartCount": 1,
    "state": {"running": {"startedAt": TIME}, "waiting": {"reason": "x", "message": "y"}},
}
NODE = {
    "metadata": METADATA,
    "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"bootID": "b", "kernelVersion": "6.8"},
        "capacity": {"nvidia.com/gpu": "8"},
    },
}
POD = {
    "metadata": METADATA,
    "spec": {
        "nodeName": "a",
        "nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [CONTAINER_STATUS],
    },
}
DAEMON_SET = {
    "metadata": METADATA,
    "spec": {"template": {"metadata": {"labels": {"a": "b"}}}},
    "status": {"observedGeneration": 1, "desiredNumberScheduled": 1},
}
LEASE = {
    "metadata": METADATA,
    "spec": {
        "holderIdentity": "x",
        "leaseDurationSeconds": 15,
        "renewTime": TIME,
        "leaseTransitions": 1,
    },
}
ROLLOUT = {
    "metadata": METADATA,
    "spec": {"brake": "None", "release": {"target": "t", "failures": 1}},
    "status": {"target": "t", "epoch": 1, "inFlight": {}, "targets": {}},
}
POLICY = cluster_policy(
    driver={
        "repository": "r.example",
        "image": "driver",
        "version": "580.1.1",
        "upgradePolicy": {"autoUpgrade": True, "maxUnavailable": "25%"},
    }
)
POLICY["metadata"] |= {"resourceVersion": "7", "creationTimestamp": TIME}


def read_node(node: resources.Node) -> None:
    is_tracked(node)
    pool_member(node)
    node_view(node, NodeContext(namespace="gpu-operator"))


def read_pod(pod: resources.Pod) -> None:
    driver_pod(pod)
    is_finished(pod)
    is_of_daemon_set(pod)
    workload_pod(pod, UpgradePolicy(), namespace="gpu-operator")


def read_daemon_set(daemon_set: resources.DaemonSet) -> None:
    snapshot_pools((), (), (daemon_set,), gpu_clusters=(), rollouts={})


def read_policy(policy: Any) -> None:
    parsed = PolicyReader().read({"ClusterPolicy": (policy,)})
    snapshot_pools(parsed, (), (), gpu_clusters=(), rollouts={})
    label_policy({"ClusterPolicy": (policy,)}, gpu_clusters=(), nfd_labels=True)


def read_lease(lease: Any) -> None:
    GpuOperatorDetector().observe(None, lease, now=0.0)


def read_discovery_node(node: discovery.Node) -> None:
    decide(node, ReportedFacts(), LabelPolicy())


def read_proof(node: proofs.Node) -> None:
    proofs.node_proof(node, None, pool="p")


def read_rollout(rollout: resources.Rollout) -> None:
    snapshot_pools((), (), (), gpu_clusters=(), rollouts={"a": rollout.status.target})


KINDS: dict[str, tuple[Resource[Any], Any, Callable[[Any], None]]] = {
    "Node": (resources.NODES, NODE, read_node),
    "Node of discovery": (discovery.NODES, NODE, read_discovery_node),
    "Node of the validator": (proofs.NODES, NODE, read_proof),
    "Pod": (resources.PODS, POD, read_pod),
    "DaemonSet": (resources.DAEMON_SETS, DAEMON_SET, read_daemon_set),
    "Lease": (LEASES, LEASE, read_lease),
    "Rollout": (resources.ROLLOUTS, ROLLOUT, read_rollout),
    "ClusterPolicy": (resources.POLICIES["ClusterPolicy"], POLICY, read_policy),
}


def listed(resource: Resource[Any], *objects: Any) -> Page[Any]:
    body = {"metadata": {"resourceVersion": "9"}, "items": objects}
    return decode_page(json.dumps(body).encode(), resource, path="/x")


def named(tree: Any, name: str) -> Any:
    return {**tree, "metadata": {**tree["metadata"], "name": name}}


def is_named(obj: Any) -> bool:
    try:
        msgspec.convert(obj, NamedObject)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_malformed_object_hides_no_other(kind: str, data: st.DataObject) -> None:
    resource, tree, read = KINDS[kind]
    odd = with_a_part_replaced(tree, data)
    objects = named(tree, "first"), odd, named(tree, "last")
    if not is_named(odd):
        with pytest.raises(MalformedResponse):
            listed(resource, *objects)
        return
    page = listed(resource, *objects)
    names = [item.metadata.name for item in page.items]
    assert {"first", "last"} <= {*names}
    assert len(page.items) + len(page.unreadable) == 3
    for item in page.items:
        read(item)


@pytest.mark.parametrize(
    ("kind", "odd", "problem"),
    [
        ("Node", {**NODE, "metadata": {**METADATA, "creationTimestamp": "yesterday"}}, "yesterday"),
        (
            "Node",
            {
                **NODE,
                "metadata": {**METADATA, "managedFields": [{"fieldsV1": [["f:sluice.dev/"]]}]},
            },
            "Expected `object`, got `array`",
        ),
        (
            "Node of discovery",
            {**NODE, "metadata": {**METADATA, "managedFields": [{"fieldsV1": ["f:labels"]}]}},
            "Expected `object`, got `array`",
        ),
        ("Pod", {**POD, "metadata": {**METADATA, "labels": {"a": 1}}}, "$.metadata.labels"),
        (
            "Pod",
            {
                **POD,
                "status": {
                    "containerStatuses": [
                        {**CONTAINER_STATUS, "state": {"running": {"startedAt": "25:00"}}}
                    ]
                },
            },
            "25:00",
        ),
        ("Lease", {**LEASE, "spec": {"leaseDurationSeconds": 10**400}}, "<= 2147483647"),
    ],
)
def test_an_unreadable_object_is_named_with_its_problem(kind: str, odd: Any, problem: str) -> None:
    resource, tree, _ = KINDS[kind]
    page = listed(resource, named(tree, "b"), odd, named(tree, "c"))
    assert [item.metadata.name for item in page.items] == ["b", "c"]
    (unreadable,) = page.unreadable
    assert unreadable.key == "gpu-operator/a"
    assert problem in unreadable.problem
