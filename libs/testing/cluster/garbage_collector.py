"""The garbage collector: deletes objects whose owners are gone.

Handles the dependents that exist in this simulation: pods, controller revisions and node leases. An
owner counts as gone only when the API server confirms it. An owner whose pods stay has a finalizer.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from libs.kube.client import Kube
from libs.kube.errors import Conflict, NotFound
from libs.kube.resources import Resource
from libs.kube.views import Object, OwnerReference
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import patch
from libs.testing.cluster.views import (
    DAEMON_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
)

if TYPE_CHECKING:
    from libs.kube.cache import Cache

USER = "system:serviceaccount:kube-system:generic-garbage-collector"

ORPHAN = "orphan"
_Key = tuple[str, str]
"""Kind, and namespace/name."""


class GarbageCollector:
    """Deletes dependents of missing owners, and completes the deletion of waiting owners."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._dependents: dict[str, tuple[Resource[Any], Cache[Any]]] = {
            "Pod": (PODS, informers.pods),
            "ControllerRevision": (REVISIONS, informers.revisions),
            "Lease": (LEASES, informers.leases),
        }
        self._owners: dict[str, tuple[Resource[Any], Cache[Any]]] = {
            "DaemonSet": (DAEMON_SETS, informers.daemon_sets),
            "ReplicaSet": (REPLICA_SETS, informers.replica_sets),
            "Job": (JOBS, informers.jobs),
            "Node": (NODES, informers.nodes),
        }
        self._loop = ControllerLoop[_Key]("garbage", self._reconcile, clock=clock)

    async def run(self) -> None:
        with ExitStack() as stack:
            for kind, (_, informer) in self._owners.items():
                stack.callback(informer.on_change(self._owner_changed(kind)))
            for kind, (_, informer) in self._dependents.items():
                stack.callback(informer.on_change(self._dependent_changed(kind)))
                for obj in informer:
                    self._check(kind, obj)
            for kind, (_, informer) in self._owners.items():
                for obj in informer:
                    self._check_owner(kind, obj)
            await self._loop.run()

    def _owner_changed(self, kind: str) -> Callable[[Object | None, Object | None], None]:
        def changed(before: Object | None, after: Object | None) -> None:
            if after is not None:
                self._check_owner(kind, after)
            if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                for name, obj in self._dependents_of(before.metadata.uid):
                    self._loop.queue.add((name, obj.metadata.key))

        return changed

    def _dependent_changed(self, kind: str) -> Callable[[Object | None, Object | None], None]:
        def changed(before: Object | None, after: Object | None) -> None:
            if before is None and after is not None:
                self._check(kind, after)

        return changed

    def _check(self, kind: str, obj: Object) -> None:
        meta = obj.metadata
        for reference in meta.owner_references:
            if reference.kind in self._owners and not self._find_owner(reference, meta.namespace):
                self._loop.queue.add((kind, meta.key))

    def _check_owner(self, kind: str, obj: Object) -> None:
        if ORPHAN in obj.metadata.finalizers:
            self._loop.queue.add((kind, obj.metadata.key))

    def _find_owner(self, reference: OwnerReference, namespace: str) -> Object | None:
        resource, informer = self._owners.get(reference.kind, (None, None))
        if resource is None or informer is None:
            return None
        key = f"{namespace}/{reference.name}" if resource.namespaced else reference.name
        found: Object | None = informer.get(key)
        return found if found is not None and found.metadata.uid == reference.uid else None

    def _dependents_of(self, uid: str) -> list[tuple[str, Object]]:
        return [
            (kind, obj)
            for kind, (_, informer) in self._dependents.items()
            for obj in informer.by_index("owner", uid)
        ]

    async def _reconcile(self, key: _Key) -> None:
        kind, name = key
        if kind in self._owners:
            resource, informer = self._owners[kind]
            owner: Object | None = informer.get(name)
            if owner is not None and owner.metadata.deletion_timestamp:
                await self._finalize_owner(resource, owner)
            return
        resource, informer = self._dependents[kind]
        obj: Object | None = informer.get(name)
        if obj is None or obj.metadata.deletion_timestamp:
            return
        references = obj.metadata.owner_references
        for reference in references:
            if not await self._is_gone(reference, obj.metadata.namespace):
                return
        if references:
            await self._delete(resource, obj)

    async def _is_gone(self, reference: OwnerReference, namespace: str) -> bool:
        if reference.kind not in self._owners or self._find_owner(reference, namespace):
            return False
        resource, _ = self._owners[reference.kind]
        namespace = namespace if resource.namespaced else ""
        try:
            found: Object = await self._kube.get(resource, reference.name, namespace=namespace)
        except NotFound:
            return True
        return found.metadata.uid != reference.uid

    async def _delete(self, resource: Resource[Any], obj: Object) -> None:
        meta = obj.metadata
        try:
            await self._kube.delete(resource, meta.name, uid=meta.uid, namespace=meta.namespace)
        except (NotFound, Conflict):
            return

    async def _finalize_owner(self, resource: Resource[Any], owner: Object) -> None:
        """Orphan the dependents, then remove the finalizer that asks for it."""
        meta = owner.metadata
        if ORPHAN not in meta.finalizers:
            return
        for kind, obj in self._dependents_of(meta.uid):
            await self._orphan(self._dependents[kind][0], obj, meta.uid)
        kept = [each for each in meta.finalizers if each != ORPHAN]
        await self._kube.merge(
            resource,
            meta.name,
            {"metadata": {"finalizers": kept or None}},
            resource_version=meta.resource_version,
            namespace=meta.namespace,
        )

    async def _orphan(self, resource: Resource[Any], obj: Object, owner: str) -> None:
        """Remove one owner reference, by uid, with a strategic merge patch."""
        change = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner}]}}
        try:
            await patch(self._kube, resource, obj, change)
        except NotFound:
            return
