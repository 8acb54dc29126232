"""The client: the few operations that we need of an API server, each made of one request or two.

What objects are for, and whether a second try is right, is not known here.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from sluice.kube.answers import (
    Evicted,
    Eviction,
    NotThere,
    Page,
    Withheld,
    read,
    read_page,
    rest_of,
    speaking_of,
)
from sluice.kube.errors import Conflict, Invalid, KubeError, NotFound, TooManyRequests
from sluice.kube.requests import JSON, WITHIN, Requests
from sluice.kube.resources import PODS, Resource
from sluice.kube.views import Object

__all__ = [
    "APPLY_PATCH",
    "JSON",
    "MERGE_PATCH",
    "WITHIN",
    "Evicted",
    "Eviction",
    "Guard",
    "Kube",
    "NotThere",
    "Page",
    "Withheld",
]

V = TypeVar("V", bound=Object)

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """The very object, in the very state, that a write was decided on."""

    uid: str
    resource_version: str


class Kube(Requests):
    """One API server, asked by one field manager."""

    async def get(
        self, resource: Resource[V], name: str, *, namespace: str = "", within: float = WITHIN
    ) -> V:
        """One object as it is now."""
        path = resource.path(namespace=namespace, name=name)
        with speaking_of(resource):
            body = await self.request("GET", path, within=within)
        return read(body, resource.view, tried=f"GET {path}")

    async def page(
        self,
        resource: Resource[V],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        resume: str = "",
        resource_version: str = "",
        within: float = 30.0,
    ) -> Page[V]:
        """Objects of a kind, `limit` at a time; `resume` is the `rest` of the page before."""
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        query |= {"continue": resume, "resourceVersion": resource_version}
        path = resource.path(namespace=namespace)
        return read_page(await self._listed(resource, path, query, within), resource, path=path)

    async def everything(
        self,
        resource: Resource[V],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        within: float = 30.0,
    ) -> Page[V]:
        """All objects of a kind, as of one revision; `within` is for each part of the list.

        While a part is read the next one is on its way.
        """
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        path = resource.path(namespace=namespace)
        items: list[V] = []
        body = await self._listed(resource, path, query, within)
        while rest := rest_of(body, path=path):
            following = self._listed(resource, path, query | {"continue": rest}, within)
            task = asyncio.create_task(following, name=f"the rest of {path}")
            try:
                await asyncio.sleep(0)  # it is sent before this part is read
                items.extend(read_page(body, resource, path=path).items)
                body = await task
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
        last = read_page(body, resource, path=path)
        return msgspec.structs.replace(last, items=(*items, *last.items))

    async def create(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        within: float = WITHIN,
    ) -> V:
        """A new object; `AlreadyExists` where there is one of that name."""
        path = resource.path(namespace=namespace)
        return await self._written("POST", path, resource, wanted, within=within)

    async def replace(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        within: float = WITHIN,
    ) -> V:
        """PUT the whole object, or its status; its resourceVersion must be the server's."""
        name = _fenced(wanted, resource)
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._written("PUT", path, resource, wanted, within=within)

    async def merge(
        self,
        resource: Resource[V],
        name: str,
        change: Mapping[str, Any],
        *,
        resource_version: str,
        namespace: str = "",
        subresource: str = "",
        within: float = WITHIN,
    ) -> V:
        """A merge patch of an object that is still at that revision."""
        metadata: Mapping[str, Any] = change.get("metadata") or {}
        fenced = {**change, "metadata": {**metadata, "resourceVersion": resource_version}}
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._written(
            "PATCH", path, resource, fenced, content_type=MERGE_PATCH, within=within
        )

    async def apply(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        force: bool,
        guard: Guard | None = None,
        namespace: str = "",
        subresource: str = "",
        within: float = WITHIN,
    ) -> V:
        """Say what this manager wants of an object: all that it owns of it, and nothing else.

        Without a guard an object that is not there is created; a Node is never, so there it must
        have one. With a guard, an object that is gone or another by now is `NotFound`.
        """
        if guard is None and not resource.ours_to_create:
            raise ValueError(f"an apply to a {resource.kind} needs a guard, or it could create one")
        metadata: dict[str, Any] = dict(wanted["metadata"])
        if guard is not None:
            metadata |= {"uid": guard.uid, "resourceVersion": guard.resource_version}
        whole = {
            **wanted,
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
        }
        name = metadata["name"]
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = {"force": "true"} if force else {}
        until = self._clock.monotonic() + within
        try:
            return await self._written(
                "PATCH", path, resource, whole, query=query, content_type=APPLY_PATCH, within=within
            )
        except (Conflict, Invalid) as error:
            # One code and reason for "it is gone", "it is another" and "it has changed": ask.
            if guard is not None and not getattr(error, "claims", ()):
                await self._doubt(resource, name, uid=guard.uid, namespace=namespace, until=until)
            raise

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        uid: str,
        namespace: str = "",
        grace: int | None = None,
        within: float = WITHIN,
    ) -> None:
        """Delete the object of that uid; another of the same name is a `Conflict`."""
        path = resource.path(namespace=namespace, name=name)
        await self.request("DELETE", path, body=_doom(uid=uid, grace=grace), within=within)

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str,
        grace: int | None = None,
        within: float = WITHIN,
    ) -> Eviction:
        """Ask that the pod of that uid go; what its budget says is an answer, not an error."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _doom(uid=uid, grace=grace),
        }
        until = self._clock.monotonic() + within
        try:
            # A server tries an eviction that names another uid for ten seconds: do not let it.
            await self._find(PODS, name, uid=uid, namespace=namespace, until=until)
            try:
                await self.request("POST", path, body=body, within=self._left(until))
            except Conflict:
                await self._find(PODS, name, uid=uid, namespace=namespace, until=until)
                raise
        except NotFound:
            return NotThere()
        except TooManyRequests as refused:
            return Withheld(refused.message, refused.retry_after)
        return Evicted()

    async def _listed(
        self, resource: Resource[Any], path: str, query: Mapping[str, str], within: float
    ) -> bytes:
        asked = {key: value for key, value in query.items() if value}
        with speaking_of(resource):
            return await self.request("GET", path, query=asked, within=within)

    async def _find(
        self, resource: Resource[Any], name: str, *, uid: str, namespace: str, until: float
    ) -> None:
        """`NotFound` unless the object of that uid is there, whatever its state."""
        path = resource.path(namespace=namespace, name=name)
        words = f"GET {path}"
        body = await self.request("GET", path, within=self._left(until))
        if read(body, Object, tried=words).metadata.uid != uid:
            raise NotFound(words, f"{name} is not the one of uid {uid} any more", missing=name)

    async def _doubt(
        self, resource: Resource[Any], name: str, *, uid: str, namespace: str, until: float
    ) -> None:
        """The same, but nothing where that cannot be known now."""
        try:
            await self._find(resource, name, uid=uid, namespace=namespace, until=until)
        except NotFound:
            raise
        except KubeError:
            return

    def _left(self, until: float) -> float:
        return max(until - self._clock.monotonic(), 0.001)

    async def _written(
        self,
        method: str,
        path: str,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        within: float,
    ) -> V:
        with speaking_of(resource):
            body = await self.request(
                method,
                path,
                query={**(query or {}), "fieldManager": self.manager},
                body=wanted,
                content_type=content_type,
                within=within,
            )
        return read(body, resource.view, tried=f"{method} {path}")


def _fenced(wanted: Mapping[str, Any], resource: Resource[Any]) -> str:
    metadata: Mapping[str, str] = wanted["metadata"]
    if not metadata.get("resourceVersion"):
        raise ValueError(f"a PUT of a {resource.kind} without resourceVersion would be no fence")
    return metadata["name"]


def _doom(*, uid: str, grace: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options
