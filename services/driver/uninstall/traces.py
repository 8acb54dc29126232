"""What Sluice wrote on Nodes, which of them an operation changes, and the pod that undoes. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from libs.contracts import node as on_node
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import LEASE_ANNOTATION, LeaseOwner, NodeLease
from libs.kube.views import ManagedFields, Metadata, Node, Taint
from services.driver.cluster.resources import MANAGER as DRIVER

DISCOVERY: Final = "sluice-discovery"
MANAGERS: Final = (on_node.MANAGER, DISCOVERY, DRIVER)
"""The field managers of all writes to Nodes."""
PREFIX: Final = "sluice.dev/"
CONDITION: Final = "GPUHealthy"
"""Written by discovery."""

UNDO: Final = ("services.driver", "undo")
_OF_AGENT: Final = ("state", "bus-token", "persistenced")
"""Volumes of an agent that the role `undo` does not need."""


def is_leased(node: Node) -> bool:
    """Return whether an operation of Sluice changes the node; a person's lease is none."""
    lease = node.metadata.annotations.get(LEASE_ANNOTATION)
    if lease is None:
        return False
    try:
        return decode(NodeLease, lease.encode()).owner is not LeaseOwner.HUMAN
    except MalformedMessage:
        return True


def appliers(metadata: Metadata) -> list[str]:
    """Return our managers that applied fields of a Node, its status aside."""
    found = (
        entry.manager
        for entry in metadata.managed_fields
        if entry.manager in MANAGERS and entry.operation == "Apply" and not entry.subresource
    )
    return sorted(set(found))


def kept_fields(manager: str, node: Node) -> dict[str, Any]:
    """Return what an apply in the name of a manager keeps: the list of taints, which are others'.

    The scheduler owns the list of a node whose startup taint it removed. Left out, it would go.
    """
    metadata, taints = node.metadata, node.spec.taints
    body: dict[str, Any] = {"metadata": {"name": metadata.name}}
    if taints and any(_owns_taints(entry, manager) for entry in metadata.managed_fields):
        body["spec"] = {"taints": [_taint_object(taint) for taint in taints]}
    return body


def _owns_taints(entry: ManagedFields, manager: str) -> bool:
    if entry.manager != manager or entry.operation != "Apply" or entry.subresource:
        return False
    fields: Mapping[str, Any] = msgspec.json.decode(entry.fields_v1)
    return "f:taints" in fields.get("f:spec", {})


def _taint_object(taint: Taint) -> dict[str, str]:
    fields = {"value": taint.value, "timeAdded": taint.time_added}
    given = {name: value for name, value in fields.items() if value}
    return {"key": taint.key, "effect": taint.effect, **given}


def keys_to_remove(metadata: Metadata) -> dict[str, dict[str, None]]:
    """Return the labels and annotations of ours that no apply has removed, as a merge patch.

    Of keys in our name space, whoever wrote them; of others, what only we own.
    """
    patch: dict[str, dict[str, None]] = {}
    for section, present in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        ours: set[str] = set()
        theirs: set[str] = set()
        for entry in metadata.managed_fields:
            (ours if entry.manager in MANAGERS else theirs).update(_owned(entry, section))
        only_ours = ours - theirs
        keys = [key for key in sorted(present) if key.startswith(PREFIX) or key in only_ours]
        if keys:
            patch[section] = dict.fromkeys(keys)
    return patch


def _owned(entry: ManagedFields, section: str) -> Iterator[str]:
    fields: Mapping[str, Any] = msgspec.json.decode(entry.fields_v1)
    owned: Mapping[str, Any] = fields.get("f:metadata", {}).get(f"f:{section}", {})
    for key in owned:
        if key.startswith("f:"):
            yield key.removeprefix("f:")


def is_undoing(spec: Mapping[str, Any]) -> bool:
    """Return whether the DaemonSet has been changed by `undo_change`."""
    return tuple(spec["template"]["spec"]["containers"][0].get("args", ())) == UNDO


def undo_change(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes undoing pods of the driver agent's, on all Linux nodes.

    They keep image, settings and rights, and run on all nodes at once, since the agent of discovery
    has been on nodes without GPUs too.
    """
    pod: Mapping[str, Any] = spec["template"]["spec"]
    container: Mapping[str, Any] = pod["containers"][0]
    mounts = [each for each in container["volumeMounts"] if each["name"] not in _OF_AGENT]
    return {
        "spec": {
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0},
            },
            "template": {
                "spec": {
                    "nodeSelector": {
                        **dict.fromkeys(pod.get("nodeSelector", {})),
                        "kubernetes.io/os": "linux",
                    },
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{**container, "args": list(UNDO), "volumeMounts": mounts}],
                    "volumes": [each for each in pod["volumes"] if each["name"] not in _OF_AGENT],
                }
            },
        }
    }
