"""The requests that only components of the cluster make: what the client has no operation for."""

from collections.abc import Mapping
from typing import Any, TypeVar

from libs.kube.client import Kube
from libs.kube.errors import Invalid, NotFound
from libs.kube.resources import Resource
from libs.kube.responses import decode
from libs.kube.views import Object

V = TypeVar("V", bound=Object)

STRATEGIC_PATCH = "application/strategic-merge-patch+json"


async def patch(
    kube: Kube,
    resource: Resource[V],
    thing: Object,
    change: Mapping[str, Any],
    *,
    subresource: str = "",
) -> V:
    """Merge into the object of that uid, lists by their keys; `NotFound` where it is another now.

    Without a fence on the revision, as kubelets and controllers do it: each owns what it writes.
    """
    meta = thing.metadata
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
    except Invalid as refused:
        if any(cause.field == "metadata.uid" for cause in refused.causes):
            words = f"there is another {resource.kind} of that name, not the one of uid {meta.uid}"
            raise NotFound(refused.tried, words, code=refused.code) from refused
        raise
    return decode(body, resource.view, tried=f"PATCH {path}")


async def patch_status(
    kube: Kube, resource: Resource[V], thing: Object, status: Mapping[str, Any]
) -> V:
    """The same with its status: conditions by their type."""
    return await patch(kube, resource, thing, {"status": status}, subresource="status")
