"""Writes that only components of the cluster make, and the pods that they create."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import Invalid, NotFound
from libs.kube.requests import decode
from libs.kube.resources import Resource
from libs.kube.views import Object, View
from libs.testing.cluster.views import Meta

V = TypeVar("V", bound=Object)

STRATEGIC_PATCH = "application/strategic-merge-patch+json"


async def patch(
    kube: Kube,
    resource: Resource[V],
    obj: Object,
    change: Mapping[str, Any],
    *,
    subresource: str = "",
) -> V:
    """Apply a strategic merge patch; raise `NotFound` if the object's uid has changed.

    Not fenced on the resourceVersion, like the patches of real kubelets and controllers.
    """
    meta = obj.metadata
    path = resource.path(namespace=meta.namespace, name=meta.name, subresource=subresource)
    metadata: Mapping[str, Any] = change.get("metadata") or {}
    try:
        body = await kube.request(
            "PATCH",
            path,
            query={"fieldManager": kube.manager},
            body={**change, "metadata": {**metadata, "uid": meta.uid}},
            content_type=STRATEGIC_PATCH,
        )
    except Invalid as error:
        if any(cause.field == "metadata.uid" for cause in error.causes):
            message = f"the {resource.kind} of that name is another one, not uid {meta.uid}"
            raise NotFound(error.operation, message, code=error.code) from error
        raise
    return decode(body, resource.view, tried=f"PATCH {path}")


async def patch_status(
    kube: Kube, resource: Resource[V], obj: Object, status: Mapping[str, Any]
) -> V:
    """Like `patch`, for the status; conditions are merged by type."""
    return await patch(kube, resource, obj, {"status": status}, subresource="status")


async def merge_status(
    kube: Kube, resource: Resource[V], obj: Object, status: Mapping[str, Any], *, cache: Cache[V]
) -> V:
    """Merge the status into this revision of the object, and record the answer in the cache."""
    meta = obj.metadata
    written = await kube.merge(
        resource,
        meta.name,
        {"status": status},
        resource_version=meta.resource_version,
        namespace=meta.namespace,
        subresource="status",
    )
    cache.record_write(written)
    return written


def without_zeros(status: View, *, keep: Sequence[str]) -> dict[str, Any]:
    """Return the status as a patch that removes fields at zero, except those to keep."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {key: value if value or key in keep else None for key, value in fields.items()}


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
