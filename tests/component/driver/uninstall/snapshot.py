"""All objects of a cluster, to compare before an installation and after its removal."""

from collections.abc import Mapping
from typing import Any

from tests.support import eventually
from tests.system.nodes.kubectl import Kubectl

_SERVERS_OWN = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
)
_NOT_COMPARED = ("events", "componentstatuses", "endpoints", "endpointslices")


async def snapshot(kubectl: Kubectl) -> dict[str, Any]:
    """Return all objects of the cluster, without what servers and controllers keep there."""
    kinds = (await kubectl.run("api-resources", "--verbs=list", "-o", "name")).split()
    listed = [each for each in kinds if each.partition(".")[0] not in _NOT_COMPARED]
    found = await kubectl.get(",".join(listed), "--all-namespaces")
    compared = [each for each in found["items"] if not _is_heartbeat(each)]
    return {_key(each): _content(each) for each in compared}


async def until_as(
    before: Mapping[str, Any], kubectl: Kubectl, *, own: str = "", within: float = 60.0
) -> None:
    """Wait until all objects are as before; fail with those that are not.

    `own` is the namespace of a test that shares its control plane with others.
    """
    differences: dict[str, object] = {}

    async def is_as_before() -> bool:
        after = await snapshot(kubectl)
        differences.clear()
        differences.update(
            (key, (before.get(key), after.get(key)))
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key)
            # A pod that another test has left may end meanwhile.
            and not (
                key.startswith("Pod t-") and not key.startswith(f"Pod {own}/") and key not in after
            )
        )
        return not differences

    try:
        await eventually(is_as_before, within=within, every=1.0)
    except TimeoutError:
        raise AssertionError(differences) from None


def _is_heartbeat(obj: Mapping[str, Any]) -> bool:
    return obj["metadata"].get("namespace") == "kube-node-lease"


def _key(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{obj['kind']} {metadata.get('namespace', '')}/{metadata['name']}"


def _content(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: text for key, text in obj["metadata"].items() if key not in _SERVERS_OWN}
    content = {**obj, "metadata": {key: text for key, text in metadata.items() if text}}
    status = content.pop("status", None)
    if obj["kind"] == "Node":
        content["conditions"] = {each["type"]: each["status"] for each in status["conditions"]}
        taints = content["spec"].get("taints", [])
        content["spec"]["taints"] = [{**each, "timeAdded": ""} for each in taints]
    elif "nvidia.com" in obj["apiVersion"]:
        content["status"] = status
    elif obj["kind"] == "Lease":
        content.pop("spec")
    return content
