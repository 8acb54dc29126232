"""The objects of a cluster, to compare before an installation and after its removal.

Those in namespaces of other tests, which share the control plane, are not among them: controllers
may still replace a pod there.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from libs.kube.client import Kube
from libs.kube.requests import JSON
from tests.support import eventually

_SERVERS_OWN = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
)
_NOT_COMPARED = ("events", "componentstatuses", "endpoints", "endpointslices")
_KINDS = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def snapshot(kube: Kube, *, own: str) -> dict[str, Any]:
    """Return what servers and controllers do not keep themselves of the objects of the cluster, of
    its first namespaces, and of the namespace `own`.
    """
    found: dict[str, Any] = {}
    async for path, kind in _listed_kinds(kube):
        for item in msgspec.json.decode(await kube.request("GET", path))["items"]:
            obj: dict[str, Any] = {**item, **kind}
            namespace = obj["metadata"].get("namespace", "")
            is_shared = namespace in ("", "default") or namespace.startswith("kube-")
            if (is_shared or namespace == own) and not _is_heartbeat(obj):
                found[_key(obj)] = _content(obj)
    return found


async def _listed_kinds(kube: Kube) -> AsyncIterator[tuple[str, Mapping[str, str]]]:
    """Yield the path of each list, with kind and version of its items.

    A group's versions come with the preferred one first, which need not have all of its kinds.
    """
    for root in ("/api", "/apis"):
        answer = msgspec.json.decode(await kube.request("GET", root, accept=_KINDS))
        for group in answer["items"]:
            name = group["metadata"].get("name", "")
            seen = set(_NOT_COMPARED)
            for served in group["versions"]:
                version = "/".join(filter(None, (name, served["version"])))
                for each in served["resources"]:
                    if "list" in each["verbs"] and each["resource"] not in seen:
                        seen.add(each["resource"])
                        kind = {"apiVersion": version, "kind": each["responseKind"]["kind"]}
                        yield f"{root}/{version}/{each['resource']}", kind


async def until_as(
    before: Mapping[str, Any], kube: Kube, *, own: str, within: float = 60.0
) -> None:
    """Wait until all objects are as before; fail with those that are not."""
    differences: dict[str, object] = {}

    async def is_as_before() -> bool:
        after = await snapshot(kube, own=own)
        differences.clear()
        differences.update(
            (key, (before.get(key), after.get(key)))
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key)
        )
        return not differences

    try:
        await eventually(is_as_before, within=within, every=0.5)
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
