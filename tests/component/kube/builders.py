"""Objects that the tests make, as small as a server takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

JsonObject = dict[str, Any]


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> JsonObject:
    """The plainest object there is."""
    return {"metadata": {"name": name, **metadata}, **({"data": dict(data)} if data else {})}


def pod(
    name: str,
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    grace: int = 30,
    **metadata: Any,
) -> JsonObject:
    """On that node without asking the scheduler, which would not send it anywhere."""
    return {
        "metadata": {"name": name, "labels": dict(labels or {}), **metadata},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "terminationGracePeriodSeconds": grace,
            "schedulerName": "nobody",
            **({"nodeName": node} if node else {}),
        },
    }


SINCE = "2026-11-01T00:00:00Z"


def condition(kind: str, status: str) -> JsonObject:
    """Of a node or a pod."""
    return {"type": kind, "status": status, "lastTransitionTime": SINCE}


def kubelet_condition(condition: JsonObject) -> JsonObject:
    """A condition of a node, as its kubelet reports it."""
    return condition | {"lastHeartbeatTime": SINCE}


READY = {
    "phase": "Running",
    "conditions": [condition("Ready", "True"), condition("ContainersReady", "True")],
}
"""The status of a pod whose containers run and are ready."""


def budget(name: str, labels: Mapping[str, str], **spec: Any) -> JsonObject:
    """A PodDisruptionBudget for pods of these labels."""
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": dict(labels)}, **spec}}


def daemon_set(
    name: str,
    *,
    selector: Mapping[str, str],
    image: str = "none:1",
    strategy: Mapping[str, Any] | None = None,
    grace: int = 30,
    tolerations: Sequence[Mapping[str, Any]] = (),
) -> JsonObject:
    """On nodes of these labels; its pods carry the label `app`."""
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": dict(strategy or {"type": "OnDelete"}),
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": dict(selector),
                    "containers": [{"name": "main", "image": image}],
                    "terminationGracePeriodSeconds": grace,
                    **({"tolerations": list(tolerations)} if tolerations else {}),
                },
            },
        },
    }
