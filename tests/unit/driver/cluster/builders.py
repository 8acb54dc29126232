"""Plans, live objects and nodes for tests of the driver's cluster role."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from libs.contracts.facts import NextKernel
from libs.contracts.node import NodeRecord
from libs.policy.render.rendered import RenderedObject
from services.driver.cluster import resources
from services.driver.cluster.plan import ClusterSnapshot, ObjectKey, OperandPlan, make_plan
from tests.builders import objects
from tests.builders.fleet import written
from tests.builders.objects import seen
from tests.unit.policy.situations import SETTINGS, UBUNTU, cluster_policy

POLICY_KEY = ObjectKey("ClusterPolicy", "cluster-policy")


def owned_fields(value: Any) -> dict[str, Any]:
    """Return the `fieldsV1` of an apply of this value."""
    if isinstance(value, dict):
        return {f"f:{key}": owned_fields(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(i, dict) and "name" in i for i in value):
        names = [msgspec.json.encode({"name": item["name"]}).decode() for item in value]
        return {
            f"k:{name}": {".": {}, **owned_fields(item)}
            for name, item in zip(names, value, strict=True)
        }
    return {}


def live_object(obj: dict[str, Any], *, ours: bool = True, **metadata: Any) -> Any:
    """Return a rendered object as the server has it, applied by Sluice or by another manager."""
    content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    applied = {name: obj["metadata"].get(name, {}) for name in ("labels", "annotations")}
    managed = {
        "manager": resources.MANAGER if ours else "kubectl",
        "operation": "Apply",
        "fieldsV1": owned_fields({**content, "metadata": applied}),
    }
    content["metadata"] = {
        "uid": "u",
        "resourceVersion": "7",
        **obj["metadata"],
        "managedFields": [managed],
        **metadata,
    }
    return seen(resources.OPERANDS[obj["kind"]].view, content)


def with_handlers(node: resources.Node, *handlers: str) -> resources.Node:
    """Return the node with a container runtime that knows these handlers."""
    known = tuple(resources.RuntimeHandler(name=handler) for handler in handlers)
    status = resources.NodeStatus(runtime_handlers=known)
    return replace(node, status=status)


def with_allocatable(node: resources.Node, **counts: str) -> resources.Node:
    """Return the node with these resources of nvidia.com that pods can get."""
    allocatable = {"cpu": "64"} | {f"nvidia.com/{name}": count for name, count in counts.items()}
    status = resources.NodeStatus(allocatable=allocatable)
    return replace(node, status=status)


def node(
    name: str = "a", *, record: NodeRecord | str | None = None, **labels: str
) -> resources.Node:
    """Return an Ubuntu node with GPUs."""
    labels = {**UBUNTU.labels, **labels}
    notes = {"other": "x", **written(record)}
    whole = objects.node(name, uid=f"uid-{name}", labels=labels, annotations=notes)
    return seen(resources.Node, whole)


def policy(obj: dict[str, Any], **fields: Any) -> resources.PolicyObject:
    """Return a policy as the server has it."""
    metadata = {"resourceVersion": "7", "generation": 1, **obj["metadata"]}
    return msgspec.convert({**obj, **fields, "metadata": metadata}, resources.PolicyObject)


def plan(
    *objects: dict[str, Any],
    nodes: tuple[resources.Node, ...] = (),
    daemon_sets: tuple[resources.DaemonSet, ...] = (),
    has_monitors: bool = False,
    handlers: Mapping[str, Collection[str]] = {},
    config_maps: Mapping[str, Mapping[str, str]] = {},
    next_kernels: Mapping[tuple[str, str], NextKernel] = {},
) -> OperandPlan:
    """Return the plan for these policies, by default one ClusterPolicy."""
    given = objects or (cluster_policy(),)
    snapshot = ClusterSnapshot(
        policies={
            kind: tuple(policy(obj) for obj in given if obj["kind"] == kind)
            for kind in resources.POLICIES
        },
        nodes=nodes or (node(),),
        gpu_clusters=(),
        config_maps=config_maps,
        config_texts=config_maps,
        daemon_sets=daemon_sets,
        has_monitors=has_monitors,
        reported_handlers=handlers,
        next_kernels=next_kernels,
    )
    return make_plan(snapshot, SETTINGS)


def driver_of(operands: OperandPlan) -> RenderedObject:
    """Return the only driver DaemonSet."""
    (found,) = [rendered for rendered in operands.objects.values() if rendered.driver]
    return found
