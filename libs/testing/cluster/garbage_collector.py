"""The garbage collector: what belongs to nobody any more goes, unless it was set free.

It knows the dependents that live in this simulation (pods, controller revisions, node leases).
An owner is gone only when the API server itself says so. Background, foreground and orphaning
deletion differ by the finalizer that the server puts on the owner.
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
FOREGROUND = "foregroundDeletion"

_Key = tuple[str, str]
"""Kind, and namespace/name."""


class GarbageCollector:
    """Deletes dependents of owners that are gone, and lets owners go that wait for theirs."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
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
        self._work = ControllerLoop[_Key]("garbage", self._reconcile, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            for kind, (_, informer) in self._owners.items():
                stack.callback(informer.on_change(self._owner_changed(kind)))
            for kind, (_, informer) in self._dependents.items():
                stack.callback(informer.on_change(self._dependent_changed(kind)))
                for thing in informer:
                    self._check(kind, thing)
            for kind, (_, informer) in self._owners.items():
                for thing in informer:
                    self._check_owner(kind, thing)
            await self._work.run()

    def _owner_changed(self, kind: str) -> Callable[[Object | None, Object | None], None]:
        def changed(before: Object | None, after: Object | None) -> None:
            if after is not None:
                self._check_owner(kind, after)
            if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                for name, thing in self._dependents_of(before.metadata.uid):
                    self._work.queue.add((name, thing.metadata.key))

        return changed

    def _dependent_changed(self, kind: str) -> Callable[[Object | None, Object | None], None]:
        def changed(before: Object | None, after: Object | None) -> None:
            if before is None and after is not None:
                self._check(kind, after)
            elif before is not None and after is None:
                self._tell_owners(before)

        return changed

    def _tell_owners(self, gone: Object) -> None:
        for reference in gone.metadata.owner_references:
            owner = self._known(reference, gone.metadata.namespace)
            if owner is not None:
                self._check_owner(reference.kind, owner)

    def _check(self, kind: str, thing: Object) -> None:
        meta = thing.metadata
        for reference in meta.owner_references:
            if reference.kind in self._owners and not self._known(reference, meta.namespace):
                self._work.queue.add((kind, meta.key))

    def _check_owner(self, kind: str, thing: Object) -> None:
        if {ORPHAN, FOREGROUND}.intersection(thing.metadata.finalizers):
            self._work.queue.add((kind, thing.metadata.key))

    def _known(self, reference: OwnerReference, namespace: str) -> Object | None:
        resource, informer = self._owners.get(reference.kind, (None, None))
        if resource is None or informer is None:
            return None
        key = f"{namespace}/{reference.name}" if resource.namespaced else reference.name
        found: Object | None = informer.get(key)
        return found if found is not None and found.metadata.uid == reference.uid else None

    def _dependents_of(self, uid: str) -> list[tuple[str, Object]]:
        return [
            (kind, thing)
            for kind, (_, informer) in self._dependents.items()
            for thing in informer.by_index("owner", uid)
        ]

    async def _reconcile(self, key: _Key) -> None:
        kind, name = key
        if kind in self._owners:
            resource, informer = self._owners[kind]
            owner: Object | None = informer.get(name)
            if owner is not None and owner.metadata.deletion_timestamp:
                await self._let_go(resource, owner)
            return
        resource, informer = self._dependents[kind]
        thing: Object | None = informer.get(name)
        if thing is None or thing.metadata.deletion_timestamp:
            return
        references = thing.metadata.owner_references
        for reference in references:
            if not await self._is_gone(reference, thing.metadata.namespace):
                return
        if references:
            await self._delete(resource, thing)

    async def _is_gone(self, reference: OwnerReference, namespace: str) -> bool:
        if reference.kind not in self._owners or self._known(reference, namespace):
            return False
        resource, _ = self._owners[reference.kind]
        namespace = namespace if resource.namespaced else ""
        try:
            found: Object = await self._kube.get(resource, reference.name, namespace=namespace)
        except NotFound:
            return True
        return found.metadata.uid != reference.uid

    async def _delete(self, resource: Resource[Any], thing: Object) -> None:
        meta = thing.metadata
        try:
            await self._kube.delete(resource, meta.name, uid=meta.uid, namespace=meta.namespace)
        except (NotFound, Conflict):
            return

    async def _let_go(self, resource: Resource[Any], owner: Object) -> None:
        """Do with its dependents what its finalizer asks for, and then take that away."""
        meta = owner.metadata
        dependents = self._dependents_of(meta.uid)
        if ORPHAN in meta.finalizers:
            for kind, thing in dependents:
                await self._set_free(self._dependents[kind][0], thing, meta.uid)
        elif FOREGROUND in meta.finalizers:
            for kind, thing in dependents:
                if not thing.metadata.deletion_timestamp:
                    await self._delete(self._dependents[kind][0], thing)
            if dependents:
                return
        else:
            return
        kept = [each for each in meta.finalizers if each not in (ORPHAN, FOREGROUND)]
        await self._kube.merge(
            resource,
            meta.name,
            {"metadata": {"finalizers": kept or None}},
            resource_version=meta.resource_version,
            namespace=meta.namespace,
        )

    async def _set_free(self, resource: Resource[Any], thing: Object, owner: str) -> None:
        """A strategic patch takes one owner out of the list, by its uid."""
        change = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner}]}}
        try:
            await patch(self._kube, resource, thing, change)
        except NotFound:
            return
