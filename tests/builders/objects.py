"""Objects of Kubernetes as manifests: a test names what it is about, and leaves out the rest.

`seen` reads a manifest as a service's own view of the kind, the way an answer of a server is read.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

V = TypeVar("V")
Manifest = dict[str, Any]

GPU: Final = "nvidia.com/gpu"


def seen(view: type[V], manifest: Mapping[str, Any]) -> V:
    """Return the object as a service sees it that reads it from a server."""
    return msgspec.json.decode(msgspec.json.encode(manifest), type=view)


def metadata(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> Manifest:
    """Return metadata; fields that are empty or None are left out."""
    maps = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {"name": name, **{key: value for key, value in {**maps, **more}.items() if value}}


def condition(kind: str, status: object = "True", **more: Any) -> Manifest:
    return {"type": kind, "status": str(status), **more}


def node(
    name: str = "a",
    *,
    ready: object = None,
    gpus: int | None = None,
    boot: str = "",
    kernel: str = "",
    spec: Mapping[str, Any] | None = None,
    **meta: Any,
) -> Manifest:
    """Return a Node: `ready` adds its condition, `gpus` what it allocates; the rest is metadata."""
    status: Manifest = {}
    if ready is not None:
        status["conditions"] = [condition("Ready", ready)]
    if gpus is not None:
        status["allocatable"] = status["capacity"] = {GPU: str(gpus), "cpu": "64"}
    if boot or kernel:
        status["nodeInfo"] = {"bootID": boot, "kernelVersion": kernel}
    meta.setdefault("uid", "u")
    return {"metadata": metadata(name, **meta), "spec": dict(spec or {}), "status": status}


def owner(kind: str, name: str = "w", *, version: str = "") -> Manifest:
    """Return the reference to an object that controls another."""
    typed = {"apiVersion": version, "kind": kind} if version else {"kind": kind}
    return {**typed, "name": name, "uid": f"uid-{name}", "controller": True}


def container(name: str = "main", *, image: str = "none", gpus: int = 0, **more: Any) -> Manifest:
    """Return a container of a pod; `gpus` are its limit."""
    needs = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    return {"name": name, "image": image, **needs, **more}


def pod(
    name: str = "p",
    *,
    node: str = "",
    image: str = "none",
    gpus: int = 0,
    grace: int | None = None,
    status: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a pod with one container, bound if a node is given; further fields are of its spec."""
    fields: Manifest = {"containers": [container(image=image, gpus=gpus)], **spec}
    if node:
        fields["nodeName"] = node
    if grace is not None:
        fields["terminationGracePeriodSeconds"] = grace
    manifest: Manifest = {"metadata": metadata(name, **(meta or {})), "spec": fields}
    return manifest if status is None else {**manifest, "status": dict(status)}


def template(app: str, *, image: str = "none", gpus: int = 0, **spec: Any) -> Manifest:
    """Return the template of a workload's pods; its further fields are those of a pod."""
    made = pod(image=image, gpus=gpus, **spec)
    return {"metadata": {"labels": {"app": app}}, "spec": made["spec"]}


def daemon_set(
    name: str = "d",
    *,
    selector: Mapping[str, str] | None = None,
    strategy: Mapping[str, Any] | None = None,
    grace: int = 30,
    **pods: Any,
) -> Manifest:
    """Return a DaemonSet for nodes with the selector's labels; further fields are of its pods."""
    pods = {"nodeSelector": dict(selector or {}), "grace": grace, "image": "none:1", **pods}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": dict(strategy or {"type": "OnDelete"}),
            "template": template(name, **pods),
        },
    }


def replica_set(name: str, *, replicas: int = 1, **pods: Any) -> Manifest:
    """Return a ReplicaSet; further fields are those of its pods."""
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template(name, **pods)}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": spec,
    }


def config_map(name: str, data: Mapping[str, str] | None = None, **meta: Any) -> Manifest:
    return {"metadata": metadata(name, **meta), **({"data": dict(data)} if data else {})}


def budget(name: str, app: str, **spec: Any) -> Manifest:
    """Return a PodDisruptionBudget for the pods of a workload."""
    selector = {"selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": name}, "spec": {**selector, **spec}}
