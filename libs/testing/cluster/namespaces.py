"""Empties deleted namespaces, pods first, and then removes their finalizer.

The server's discovery tells which kinds there are. An object with a finalizer keeps its namespace.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, Forbidden, NotFound
from libs.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS, Resource
from libs.kube.views import Object
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import DEFAULT_ACCOUNT, ROOT_CERTIFICATE, ClusterInformers
from libs.testing.cluster.views import NAMESPACES, Namespace

USER = "system:serviceaccount:kube-system:namespace-controller"
FINALIZER = "kubernetes"

GRACE = 5.0
"""Seconds before deletion starts, so that every server refuses new objects first."""

RETRY_AFTER = 15.0
"""Seconds until objects with a finalizer are checked again."""

_PODS = "/api/v1", "pods"
_ResourcePath = tuple[str, str]
"""The path of a group's version, and a kind's plural."""


class _Served(msgspec.Struct, frozen=True):
    name: str
    namespaced: bool
    verbs: tuple[str, ...]


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Served, ...]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _Version


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...]


class _RemainingMeta(msgspec.Struct, frozen=True, rename="camel"):
    deletion_grace_period_seconds: int = 0


class _Remaining(msgspec.Struct, frozen=True):
    metadata: _RemainingMeta


class _Remains(msgspec.Struct, frozen=True):
    items: tuple[_Remaining, ...]


class NamespaceController:
    """Deletes the contents of terminating namespaces."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._namespaces = informers.namespaces
        self._kube = kube
        self._loop = ControllerLoop("namespaces", self._reconcile, clock=clock, workers=1)

    async def run(self) -> None:
        await self._loop.run((self._namespaces, self._changed))

    def _changed(self, _before: Namespace | None, after: Namespace | None) -> None:
        if after is not None and _is_terminating(after):
            self._loop.queue.add_after(after.metadata.name, GRACE)

    async def _reconcile(self, name: str) -> float | None:
        namespace = self._namespaces.get(name)
        if namespace is None or not _is_terminating(namespace):
            return None
        wait = await self._delete_contents(name)
        if wait is not None:
            return wait / 2 + 1
        await self._finalize(namespace)
        return None

    async def _delete_contents(self, name: str) -> float | None:
        """Delete what exists; return seconds until the next try, None where nothing is left."""
        wait = await self._delete(_PODS, name)
        if wait is not None:
            return wait
        waits = [await self._delete(kind, name) for kind in await self._resource_paths()]
        return max((each for each in waits if each is not None), default=None)

    async def _delete(self, kind: _ResourcePath, namespace: str) -> float | None:
        root, plural = kind
        path = f"{root}/namespaces/{namespace}/{plural}"
        try:
            await self._kube.request("DELETE", path)
            remaining = msgspec.json.decode(await self._kube.request("GET", path), type=_Remains)
        except NotFound:  # the kind is not served any more
            return None
        if not remaining.items:
            return None
        graces = [each.metadata.deletion_grace_period_seconds for each in remaining.items]
        return max(graces) or RETRY_AFTER

    async def _resource_paths(self) -> list[_ResourcePath]:
        groups = msgspec.json.decode(await self._kube.request("GET", "/apis"), type=_Groups).groups
        roots = ["/api/v1", *(f"/apis/{each.preferred_version.group_version}" for each in groups)]
        found: list[_ResourcePath] = []
        for root in roots:
            served = msgspec.json.decode(await self._kube.request("GET", root), type=_Resources)
            found += [
                (root, each.name)
                for each in served.resources
                if each.namespaced and {"deletecollection", "list"} <= {*each.verbs}
            ]
        return found

    async def _finalize(self, namespace: Namespace) -> None:
        meta = namespace.metadata
        path = NAMESPACES.path(name=meta.name)
        try:
            current: dict[str, Any] = msgspec.json.decode(await self._kube.request("GET", path))
            if current["metadata"]["uid"] != meta.uid:
                return
            finalizers = [each for each in current["spec"]["finalizers"] if each != FINALIZER]
            finalized = {**current, "spec": {**current["spec"], "finalizers": finalizers}}
            await self._kube.request("PUT", f"{path}/finalize", body=finalized)
        except NotFound:
            return


def _is_terminating(namespace: Namespace) -> bool:
    return bool(namespace.metadata.deletion_timestamp) and FINALIZER in namespace.spec.finalizers


if TYPE_CHECKING:
    from libs.kube.cache import Cache

ACCOUNT_USER = "system:serviceaccount:kube-system:service-account-controller"
CERTIFICATE_USER = "system:serviceaccount:kube-system:root-ca-cert-publisher"

_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class _DefaultObjectController:
    """Keeps one object of a fixed name in each namespace that is not terminating."""

    def __init__(
        self,
        informers: ClusterInformers,
        kube: Kube,
        *,
        clock: Clock,
        cache: "Cache[Object]",
        resource: Resource[Object],
        obj: Mapping[str, Any],
    ) -> None:
        self._namespaces = informers.namespaces
        self._kube = kube
        self._cache = cache
        self._resource = resource
        self._object = obj
        self._loop = ControllerLoop(resource.plural, self._reconcile, clock=clock, workers=1)

    async def run(self) -> None:
        await self._loop.run(
            (self._namespaces, self._namespace_changed), (self._cache, self._object_deleted)
        )

    def _namespace_changed(self, _before: Namespace | None, after: Namespace | None) -> None:
        if after is not None:
            self._loop.queue.add(after.metadata.name)

    def _object_deleted(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is None:
            self._loop.queue.add(before.metadata.namespace)

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp:
            return
        if self._cache.get(f"{name}/{self._object['metadata']['name']}") is None:
            # It exists already, or its namespace is gone.
            with suppress(AlreadyExists, Forbidden, NotFound):
                await self._kube.create(self._resource, self._object, namespace=name)


class DefaultAccountController(_DefaultObjectController):
    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        super().__init__(
            informers,
            kube,
            clock=clock,
            cache=informers.accounts,
            resource=SERVICE_ACCOUNTS,
            obj={"metadata": {"name": DEFAULT_ACCOUNT}},
        )


class RootCertificatePublisher(_DefaultObjectController):
    """Publishes an empty certificate: the simulated server has none."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        annotations = {"kubernetes.io/description": _DESCRIPTION}
        super().__init__(
            informers,
            kube,
            clock=clock,
            cache=informers.certificates,
            resource=CONFIG_MAPS,
            obj={
                "metadata": {"name": ROOT_CERTIFICATE, "annotations": annotations},
                "data": {"ca.crt": ""},
            },
        )
