"""Small objects for tests of what is decided about them."""

from typing import Any

import msgspec

from libs.policy.render.rendered import RenderedObject
from services.driver.cluster import resources
from services.driver.cluster.plan import ClusterSnapshot, OperandPlan, make_plan
from tests.unit.policy.situations import SETTINGS, UBUNTU, cluster_policy

OTHER = "kubectl"


def managed_fields(tree: dict[str, Any], *, manager: str = resources.MANAGER) -> dict[str, Any]:
    """What a server keeps of a manager's apply."""
    return {"manager": manager, "operation": "Apply", "fieldsV1": tree}


def fields(value: Any) -> dict[str, Any]:
    """All that is in a value, as an apply of it is kept."""
    if isinstance(value, dict):
        return {f"f:{key}": fields(item) for key, item in value.items()}
    if isinstance(value, list) and value and all(_named(item) for item in value):
        return {
            "k:" + msgspec.json.encode({"name": item["name"]}).decode(): {".": {}, **fields(item)}
            for item in value
        }
    return {}


def live_object(obj: dict[str, Any], *, ours: bool = True, **metadata: Any) -> Any:
    """A rendered object as the server has it."""
    kind = resources.OPERANDS[obj["kind"]]
    labels, annotations = (obj["metadata"].get(name, {}) for name in ("labels", "annotations"))
    said = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    tree = fields({**said, "metadata": {"labels": labels, "annotations": annotations}})
    whole = {
        **said,
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            **obj["metadata"],
            "managedFields": [managed_fields(tree, manager=resources.MANAGER if ours else OTHER)],
            **metadata,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=kind.view)


def node(name: str = "a", *, record: str = "", **labels: str) -> resources.Node:
    """One of Ubuntu, with GPUs."""
    annotations = {"sluice.dev/upgrade": record, "other": "x"} if record else {}
    labels = {**UBUNTU.labels, **labels}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, resources.Node)


def policy(kind: str, obj: dict[str, Any], **more: Any) -> resources.PolicyObject:
    """As the server has it."""
    assert obj["kind"] == kind
    metadata = {"resourceVersion": "7", "generation": 1, **obj["metadata"]}
    return msgspec.convert({**obj, **more, "metadata": metadata}, resources.PolicyObject)


def plan(
    *objects: dict[str, Any],
    nodes: tuple[resources.Node, ...] = (),
    daemon_sets: tuple[resources.DaemonSet, ...] = (),
) -> OperandPlan:
    """What follows from these, or from one policy."""
    given = objects or (cluster_policy(),)
    sight = ClusterSnapshot(
        policies={
            kind: tuple(policy(kind, obj) for obj in given if obj["kind"] == kind)
            for kind in resources.POLICIES
        },
        nodes=nodes or (node(),),
        gpu_clusters=(),
        config_maps={},
        daemon_sets=daemon_sets,
    )
    return make_plan(sight, SETTINGS)


def driver_of(made: OperandPlan) -> RenderedObject:
    """The only DaemonSet of a driver."""
    (found,) = [one for one in made.objects.values() if one.driver]
    return found


def _named(item: Any) -> bool:
    return isinstance(item, dict) and "name" in item
