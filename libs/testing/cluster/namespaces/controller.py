"""A namespace that was deleted: everything in it is deleted, pods first, and then it may go.

Which kinds there are, the server says. What a finalizer holds keeps the namespace.
"""

from contextlib import ExitStack
from typing import Any

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.views import NAMESPACES, Namespace

USER = "system:serviceaccount:kube-system:namespace-controller"
FINALIZER = "kubernetes"

GRACE = 5.0
"""Seconds until it begins, in which every server hears that nothing new may come in."""

RETRY_AFTER = 15.0
"""Seconds that a finalizer is thought to take."""

_PODS = "/api/v1", "pods"
_Place = tuple[str, str]
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


class _Left(msgspec.Struct, frozen=True, rename="camel"):
    deletion_grace_period_seconds: int = 0


class _Remaining(msgspec.Struct, frozen=True):
    metadata: _Left


class _Remains(msgspec.Struct, frozen=True):
    items: tuple[_Remaining, ...]


class NamespaceController:
    """Empties namespaces, and lets those go that are empty."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._namespaces = informers.namespaces
        self._kube = kube
        self._work = ControllerLoop("namespaces", self._reconcile, clock=clock, workers=1)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._namespaces.on_change(self._changed))
            for namespace in self._namespaces:
                self._changed(None, namespace)
            await self._work.run()

    def _changed(self, _before: Namespace | None, after: Namespace | None) -> None:
        if after is not None and _waits(after):
            self._work.queue.add_after(after.metadata.name, GRACE)

    async def _reconcile(self, name: str) -> float | None:
        namespace = self._namespaces.get(name)
        if namespace is None or not _waits(namespace):
            return None
        left = await self._emptied(name)
        if left is not None:
            return left / 2 + 1
        await self._let_go(namespace)
        return None

    async def _emptied(self, name: str) -> float | None:
        """Delete what is there; seconds that the rest will take, None where there is no rest."""
        left = await self._delete(_PODS, name)
        if left is not None:
            return left
        rest = [await self._delete(place, name) for place in await self._places()]
        return max((each for each in rest if each is not None), default=None)

    async def _delete(self, place: _Place, namespace: str) -> float | None:
        root, plural = place
        path = f"{root}/namespaces/{namespace}/{plural}"
        try:
            await self._kube.request("DELETE", path)
            remains = msgspec.json.decode(await self._kube.request("GET", path), type=_Remains)
        except NotFound:  # the kind is not served any more
            return None
        if not remains.items:
            return None
        graces = [each.metadata.deletion_grace_period_seconds for each in remains.items]
        return max(graces) or RETRY_AFTER

    async def _places(self) -> list[_Place]:
        groups = msgspec.json.decode(await self._kube.request("GET", "/apis"), type=_Groups).groups
        roots = ["/api/v1", *(f"/apis/{each.preferred_version.group_version}" for each in groups)]
        found: list[_Place] = []
        for root in roots:
            said = msgspec.json.decode(await self._kube.request("GET", root), type=_Resources)
            found += [
                (root, each.name)
                for each in said.resources
                if each.namespaced and {"deletecollection", "list"} <= {*each.verbs}
            ]
        return found

    async def _let_go(self, namespace: Namespace) -> None:
        meta = namespace.metadata
        path = NAMESPACES.path(name=meta.name)
        try:
            whole: dict[str, Any] = msgspec.json.decode(await self._kube.request("GET", path))
            if whole["metadata"]["uid"] != meta.uid:
                return
            kept = [each for each in whole["spec"]["finalizers"] if each != FINALIZER]
            ended = {**whole, "spec": {**whole["spec"], "finalizers": kept}}
            await self._kube.request("PUT", f"{path}/finalize", body=ended)
        except NotFound:
            return


def _waits(namespace: Namespace) -> bool:
    """Whether it is to end, and waits for us."""
    return bool(namespace.metadata.deletion_timestamp) and FINALIZER in namespace.spec.finalizers
