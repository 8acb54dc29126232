"""The API client: each operation is one or two requests and is never retried."""

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
from libs.kube.requests import (
    DEFAULT_TIMEOUT,
    JSON,
    decode,
    kind_of,
    require_api_object,
    unknown_kind_errors,
)
from libs.kube.resources import PODS, Resource
from libs.kube.views import Object

V = TypeVar("V", bound=Object)

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_BUDGET = "DisruptionBudget"
"""Cause of a 429 that comes from a disruption budget rather than from a busy server."""


class Preconditions(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and state of the object that a write was decided on."""

    uid: str
    resource_version: str

    def __post_init__(self) -> None:
        if not (self.uid and self.resource_version):
            raise ValueError("preconditions need both uid and resourceVersion")


class Evicted(msgspec.Struct, frozen=True):
    """The pod is marked for deletion and ends after its grace period."""


class PodGone(msgspec.Struct, frozen=True):
    """The pod of that uid does not exist any more."""


class BlockedByBudget(msgspec.Struct, frozen=True):
    """A disruption budget forbids the eviction for now; `why` is the server's text."""

    message: str
    retry_after: float | None


EvictionResult = Evicted | PodGone | BlockedByBudget


class Kube(ReadClient):
    """Client of one API server for one field manager."""

    async def create(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        """Create an object; raise `AlreadyExists` if there is one of that name."""
        path = resource.path(namespace=namespace)
        return await self._write("POST", path, resource, wanted, within=within)

    async def replace(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        """PUT the object or its status; `resourceVersion` must be the server's."""
        metadata: Mapping[str, str] = wanted["metadata"]
        if not metadata.get("resourceVersion"):
            raise ValueError(f"a PUT of a {resource.kind} needs a resourceVersion")
        path = resource.path(namespace=namespace, name=metadata["name"], subresource=subresource)
        return await self._write("PUT", path, resource, wanted, within=within)

    async def merge(
        self,
        resource: Resource[V],
        name: str,
        change: Mapping[str, Any],
        *,
        resource_version: str,
        namespace: str = "",
        subresource: str = "",
        strategic: bool = False,
        within: float = DEFAULT_TIMEOUT,
    ) -> V:
        """Send a merge patch that applies only at that revision.

        A strategic one merges lists by their keys, which only kinds of Kubernetes itself have.
        """
        if not resource_version:
            raise ValueError(f"a patch of a {resource.kind} needs a resourceVersion")
        metadata: Mapping[str, Any] = change.get("metadata") or {}
        patch = {**change, "metadata": {**metadata, "resourceVersion": resource_version}}
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._write(
            "PATCH",
            path,
            resource,
            patch,
            content_type=STRATEGIC_PATCH if strategic else MERGE_PATCH,
            within=within,
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
        """Apply all fields that this manager owns of an object.

        Without preconditions a missing object is created. A Node must not be, so it requires them.
        With preconditions, raise `NotFound` if the object is gone or has been replaced.
        """
        if preconditions is None and not resource.creatable:
            raise ValueError(
                f"an apply to a {resource.kind} needs preconditions, or it could create one"
            )
        metadata: dict[str, Any] = dict(wanted["metadata"])
        if preconditions is not None:
            metadata |= {
                "uid": preconditions.uid,
                "resourceVersion": preconditions.resource_version,
            }
        body = {
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
            return await self._write(
                "PATCH", path, resource, body, query=query, content_type=APPLY_PATCH, within=within
            )
        except (Conflict, Invalid) as error:
            # Gone, replaced and changed objects share one code and reason: read the object.
            if preconditions is not None and not (
                isinstance(error, Conflict) and error.field_conflicts
            ):
                await self._require_uid_if_known(
                    resource, name, uid=preconditions.uid, namespace=namespace, until=until
                )
            raise

    async def delete(
        self,
        resource: Resource[V],
        name: str,
        *,
        uid: str,
        namespace: str = "",
        grace: int | None = None,
        within: float = DEFAULT_TIMEOUT,
    ) -> V | None:
        """Delete the object of that uid; raise `Conflict` if another has its name.

        Return the object as it is now, or was last; None if the server answers without it.
        """
        path = resource.path(namespace=namespace, name=name)
        with unknown_kind_errors(resource):
            body = _delete_options(uid=uid, grace=grace)
            answer = await self.request("DELETE", path, body=body, within=within)
        tried = f"DELETE {path}"
        if kind_of(answer, tried=tried) != resource.kind:
            return None
        return decode(answer, resource.view, tried=tried)

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str,
        grace: int | None = None,
        within: float = DEFAULT_TIMEOUT,
    ) -> EvictionResult:
        """Evict the pod of that uid; a refusal by its disruption budget is a result."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid=uid, grace=grace),
        }
        until = self._clock.monotonic() + within
        try:
            # A server retries an eviction with a wrong uid for ten seconds: check the uid first.
            await self._require_uid(PODS, name, uid=uid, namespace=namespace, until=until)
            try:
                with unknown_kind_errors(PODS):
                    answer = await self.request("POST", path, body=body, within=self._left(until))
            except Conflict:
                await self._require_uid(PODS, name, uid=uid, namespace=namespace, until=until)
                raise
        except UnknownKind:
            raise  # not an API server that serves pods
        except NotFound:
            return PodGone()
        except TooManyRequests as error:
            causes = [cause for cause in error.causes if cause.reason == _BUDGET]
            if not causes:
                raise  # the server is busy
            # Only the cause names the budget.
            return BlockedByBudget(causes[0].message or error.message, error.retry_after)
        require_api_object(answer, tried=f"POST {path}")
        return Evicted()

    async def _require_uid(
        self, resource: Resource[Any], name: str, *, uid: str, namespace: str, until: float
    ) -> None:
        """Raise `NotFound` unless the object of that uid exists."""
        path = resource.path(namespace=namespace, name=name)
        tried = f"GET {path}"
        with unknown_kind_errors(resource):
            body = await self.request("GET", path, within=self._left(until))
        if decode(body, Object, tried=tried).metadata.uid != uid:
            raise NotFound(tried, f"{name} no longer has uid {uid}", code=404, missing=name)

    async def _require_uid_if_known(
        self, resource: Resource[Any], name: str, *, uid: str, namespace: str, until: float
    ) -> None:
        """Like `_require_uid`, but return normally if the state cannot be determined."""
        try:
            await self._require_uid(resource, name, uid=uid, namespace=namespace, until=until)
        except NotFound as error:
            if not isinstance(error, UnknownKind):
                raise
        except KubeError:
            return

    def _left(self, until: float) -> float:
        return max(until - self._clock.monotonic(), 0.001)

    async def _write(
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


def _delete_options(*, uid: str, grace: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options
