"""The client: the few operations that we need of an API server, each made of one request or two.

What objects are for, and whether a second try is right, is not known here.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from libs.kube.errors import (
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    UnknownKind,
)
from libs.kube.reads import ReadClient
from libs.kube.requests import DEFAULT_TIMEOUT, JSON
from libs.kube.resources import PODS, Resource
from libs.kube.responses import (
    BlockedByBudget,
    Evicted,
    EvictionResult,
    Page,
    PodGone,
    decode,
    require_api_object,
    unknown_kind_errors,
)
from libs.kube.views import Object

__all__ = [
    "APPLY_PATCH",
    "DEFAULT_TIMEOUT",
    "JSON",
    "MERGE_PATCH",
    "BlockedByBudget",
    "Evicted",
    "EvictionResult",
    "Kube",
    "Page",
    "PodGone",
    "Preconditions",
]

V = TypeVar("V", bound=Object)

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_BUDGET = "DisruptionBudget"
"""The cause by which a budget's 429 differs from that of a server that is busy."""


class Preconditions(msgspec.Struct, frozen=True, kw_only=True):
    """The very object, in the very state, that a write was decided on."""

    uid: str
    resource_version: str

    def __post_init__(self) -> None:
        if not (self.uid and self.resource_version):
            raise ValueError("a guard without uid or resourceVersion guards nothing")


class Kube(ReadClient):
    """One API server, asked by one field manager."""

    async def create(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        within: float = DEFAULT_TIMEOUT,
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
        within: float = DEFAULT_TIMEOUT,
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
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        """A merge patch of an object that is still at that revision."""
        if not resource_version:
            raise ValueError(f"a patch of a {resource.kind} without revision would be no fence")
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
        preconditions: Preconditions | None = None,
        namespace: str = "",
        subresource: str = "",
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        """Say what this manager wants of an object: all that it owns of it, and nothing else.

        Without a guard an object that is not there is created; a Node is never, so there it must
        have one. With a guard, an object that is gone or another by now is `NotFound`.
        """
        if preconditions is None and not resource.creatable:
            raise ValueError(f"an apply to a {resource.kind} needs a guard, or it could create one")
        metadata: dict[str, Any] = dict(wanted["metadata"])
        if preconditions is not None:
            metadata |= {
                "uid": preconditions.uid,
                "resourceVersion": preconditions.resource_version,
            }
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
            if preconditions is not None and not getattr(error, "claims", ()):
                await self._doubt(
                    resource, name, uid=preconditions.uid, namespace=namespace, until=until
                )
            raise

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        uid: str,
        namespace: str = "",
        grace: int | None = None,
        within: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Delete the object of that uid; another of the same name is a `Conflict`."""
        path = resource.path(namespace=namespace, name=name)
        with unknown_kind_errors(resource):
            body = _delete_options(uid=uid, grace=grace)
            answer = await self.request("DELETE", path, body=body, within=within)
        require_api_object(answer, tried=f"DELETE {path}")

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str,
        grace: int | None = None,
        within: float = DEFAULT_TIMEOUT,
    ) -> EvictionResult:
        """Ask that the pod of that uid go; what its budget says is an answer, not an error."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid=uid, grace=grace),
        }
        until = self._clock.monotonic() + within
        try:
            # A server tries an eviction that names another uid for ten seconds: do not let it.
            await self._find(PODS, name, uid=uid, namespace=namespace, until=until)
            try:
                with unknown_kind_errors(PODS):
                    answer = await self.request("POST", path, body=body, within=self._left(until))
            except Conflict:
                await self._find(PODS, name, uid=uid, namespace=namespace, until=until)
                raise
        except UnknownKind:
            raise  # whoever answers so knows nothing of pods
        except NotFound:
            return PodGone()
        except TooManyRequests as refused:
            if not any(cause.reason == _BUDGET for cause in refused.causes):
                raise  # the server is busy
            return BlockedByBudget(refused.message, refused.retry_after)
        require_api_object(answer, tried=f"POST {path}")
        return Evicted()

    async def _find(
        self, resource: Resource[Any], name: str, *, uid: str, namespace: str, until: float
    ) -> None:
        """`NotFound` unless the object of that uid is there, whatever its state."""
        path = resource.path(namespace=namespace, name=name)
        words = f"GET {path}"
        with unknown_kind_errors(resource):
            body = await self.request("GET", path, within=self._left(until))
        if decode(body, Object, tried=words).metadata.uid != uid:
            raise NotFound(words, f"{name} is not the one of uid {uid} any more", missing=name)

    async def _doubt(
        self, resource: Resource[Any], name: str, *, uid: str, namespace: str, until: float
    ) -> None:
        """The same, but nothing where that cannot be known now."""
        try:
            await self._find(resource, name, uid=uid, namespace=namespace, until=until)
        except NotFound as error:
            if not isinstance(error, UnknownKind):
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
        with unknown_kind_errors(resource):
            body = await self.request(
                method,
                path,
                query={**(query or {}), "fieldManager": self.manager},
                body=wanted,
                content_type=content_type,
                within=within,
            )
        return decode(body, resource.view, tried=f"{method} {path}")


def _fenced(wanted: Mapping[str, Any], resource: Resource[Any]) -> str:
    metadata: Mapping[str, str] = wanted["metadata"]
    if not metadata.get("resourceVersion"):
        raise ValueError(f"a PUT of a {resource.kind} without resourceVersion would be no fence")
    return metadata["name"]


def _delete_options(*, uid: str, grace: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options
