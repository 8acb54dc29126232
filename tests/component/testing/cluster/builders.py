"""Objects for tests: as caches hold them, and as they are written."""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.kube.views import Condition, OwnerReference, Taint
from libs.testing.cluster.daemonset_plan import HASH_LABEL
from libs.testing.cluster.views import (
    Container,
    Meta,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
)

JsonObject = dict[str, Any]

EPOCH = "2027-01-15T08:00:00Z"


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    ready: str = "True",
    gpus: int = 8,
) -> Node:
    """Return a node as a cache holds it."""
    condition = NodeCondition(type="Ready", status=ready, last_heartbeat_time=EPOCH)
    return Node(
        metadata=Meta(name=name, uid=f"uid-{name}", labels=dict(labels or {})),
        spec=NodeSpec(taints=taints, unschedulable=unschedulable),
        status=NodeStatus(conditions=(condition,), allocatable={"nvidia.com/gpu": str(gpus)}),
    )


def pod(
    name: str,
    *,
    node: str = "",
    phase: str = "Running",
    ready: bool = True,
    since: str = EPOCH,
    deleting: bool = False,
    revision: str = "",
    owner: str = "DaemonSet/d",
    created: str = EPOCH,
    gpus: int = 0,
    **spec: Any,
) -> Pod:
    """Return a pod as a cache holds it."""
    kind, _, owner_name = owner.partition("/")
    reference = OwnerReference(kind=kind, name=owner_name, uid=f"uid-{owner}", controller=True)
    needs = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = msgspec.convert({"name": "main", "resources": needs}, Container)
    return Pod(
        metadata=Meta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            resource_version="1",
            labels={HASH_LABEL: revision} if revision else {},
            deletion_timestamp=EPOCH if deleting else "",
            creation_timestamp=created,
            owner_references=(reference,) if owner else (),
        ),
        spec=PodSpec(node_name=node, containers=(container,), **spec),
        status=PodStatus(
            phase=phase,
            conditions=(
                Condition(
                    type="Ready",
                    status="True" if ready else "False",
                    last_transition_time=since,
                ),
            ),
        ),
    )


def daemon_set(
    name: str = "d",
    *,
    selector: Mapping[str, str] | None = None,
    strategy: JsonObject | None = None,
    image: str = "driver:1",
    grace: int = 30,
    init: tuple[str, ...] = (),
    **spec: Any,
) -> JsonObject:
    """Return a DaemonSet as a user writes it, for nodes with the selector's labels."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": strategy or {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": dict(selector or {}),
                    "terminationGracePeriodSeconds": grace,
                    "initContainers": [{"name": each, "image": image} for each in init],
                    "containers": [{"name": "main", "image": image}],
                    **spec,
                },
            },
        },
    }


def job(name: str, *, completions: int) -> JsonObject:
    """Return a Job whose pods are not started again by their kubelet."""
    container = {"name": "main", "image": "work:1"}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": completions, "template": template},
    }


def replica_set(name: str, *, replicas: int, gpus: int = 1, **spec: Any) -> JsonObject:
    """Return a ReplicaSet whose pods each request so many GPUs."""
    needs = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "work:1", "resources": needs}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [container],
                    **spec,
                },
            },
        },
    }


def budget(name: str, *, app: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }
