"""Small objects for tests of what is decided about them."""

from typing import Any

import msgspec

from libs.policy.rendering.rendered import Rendered
from services.driver.cluster import things
from services.driver.cluster.plan import Plan, Sight, planned
from tests.unit.policy.situations import SETTINGS, UBUNTU, cluster_policy

OTHER = "kubectl"


def owned(tree: dict[str, Any], *, manager: str = things.MANAGER) -> dict[str, Any]:
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


def kept(obj: dict[str, Any], *, ours: bool = True, **metadata: Any) -> Any:
    """A rendered object as the server has it."""
    kind = things.OPERANDS[obj["kind"]]
    labels, annotations = (obj["metadata"].get(name, {}) for name in ("labels", "annotations"))
    said = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    tree = fields({**said, "metadata": {"labels": labels, "annotations": annotations}})
    whole = {
        **said,
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            **obj["metadata"],
            "managedFields": [owned(tree, manager=things.MANAGER if ours else OTHER)],
            **metadata,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=kind.view)


def node(name: str = "a", *, record: str = "", **labels: str) -> things.Node:
    """One of Ubuntu, with GPUs."""
    annotations = {"sluice.dev/upgrade": record, "other": "x"} if record else {}
    labels = {**UBUNTU.labels, **labels}
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": labels,
        "annotations": annotations,
    }
    return msgspec.convert({"metadata": metadata}, things.Node)


def policy(kind: str, obj: dict[str, Any], **more: Any) -> things.PolicyObject:
    """As the server has it."""
    assert obj["kind"] == kind
    metadata = {"resourceVersion": "7", "generation": 1, **obj["metadata"]}
    return msgspec.convert({**obj, **more, "metadata": metadata}, things.PolicyObject)


def plan(
    *objects: dict[str, Any],
    nodes: tuple[things.Node, ...] = (),
    daemon_sets: tuple[things.DaemonSet, ...] = (),
) -> Plan:
    """What follows from these, or from one policy."""
    given = objects or (cluster_policy(),)
    sight = Sight(
        policies={
            kind: tuple(policy(kind, obj) for obj in given if obj["kind"] == kind)
            for kind in things.POLICIES
        },
        nodes=nodes or (node(),),
        gpu_clusters=(),
        config_maps={},
        daemon_sets=daemon_sets,
    )
    return planned(sight, SETTINGS)


def driver_of(made: Plan) -> Rendered:
    """The only DaemonSet of a driver."""
    (found,) = [one for one in made.objects.values() if one.driver]
    return found


def _named(item: Any) -> bool:
    return isinstance(item, dict) and "name" in item
