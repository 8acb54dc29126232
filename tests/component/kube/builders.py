"""Minimal manifests that both servers accept."""

from collections.abc import Mapping, Sequence
from typing import Any

JsonObject = dict[str, Any]


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> JsonObject:
    """Return a ConfigMap."""
    return {"metadata": {"name": name, **metadata}, **({"data": dict(data)} if data else {})}


def pod(
    name: str,
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    grace: int = 30,
    **metadata: Any,
) -> JsonObject:
    """Return a pod bound to the node; no scheduler handles it."""
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
    """Return a condition of a node or a pod."""
    return {"type": kind, "status": status, "lastTransitionTime": SINCE}


def kubelet_condition(condition: JsonObject) -> JsonObject:
    """Return a node condition as a kubelet reports it."""
    return condition | {"lastHeartbeatTime": SINCE}


READY = {
    "phase": "Running",
    "conditions": [condition("Ready", "True"), condition("ContainersReady", "True")],
}
"""The status of a pod whose containers run and are ready."""


def budget(name: str, labels: Mapping[str, str], **spec: Any) -> JsonObject:
    """Return a PodDisruptionBudget for pods with the labels."""
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
    """Return a DaemonSet for nodes with the selector's labels; its pods have the label `app`."""
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
