"""Pods created by controllers from a template. Pure."""

from collections.abc import Mapping
from typing import Any

from libs.testing.cluster.views import Meta

Plain = dict[str, Any]


def owned_by(kind: str, meta: Meta, *, group: str = "apps") -> Plain:
    """Return the owner reference to a controller."""
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels_of(template: Mapping[str, Any]) -> dict[str, str]:
    metadata: Mapping[str, Any] = template.get("metadata") or {}
    return dict(metadata.get("labels") or {})


def pod_of(
    template: Mapping[str, Any], meta: Meta, *, owner: Plain, labels: Mapping[str, str]
) -> Plain:
    metadata: Plain = {
        "generateName": f"{meta.name}-",
        "namespace": meta.namespace,
        "labels": {**labels_of(template), **labels},
        "ownerReferences": [owner],
    }
    of_template: Mapping[str, Any] = template.get("metadata") or {}
    if of_template.get("annotations"):
        metadata["annotations"] = dict(of_template["annotations"])
    spec: Plain = dict(template.get("spec") or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
