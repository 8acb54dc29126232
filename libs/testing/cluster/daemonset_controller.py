"""The DaemonSet controller: reads the caches, plans (`daemonset_plan`) and acts."""

from collections.abc import Mapping

from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.cluster.controller_loop import (
    ControllerLoop,
    DeletedPods,
    FailureBackoff,
    slow_start_batch,
)
from libs.testing.cluster.daemonset_plan import (
    DaemonTemplate,
    MissingRevision,
    OutdatedRevision,
    PodsByNode,
    by_node,
    find_revision,
    forgettable,
    hash_of,
    plan_pods,
    pod_for,
    replaceable,
    status,
)
from libs.testing.cluster.informers import ClusterInformers, orphans_of
from libs.testing.cluster.patches import merge_status, owned_by, without_zeros
from libs.testing.cluster.views import (
    DAEMON_SETS,
    PODS,
    REVISIONS,
    ControllerRevision,
    DaemonSet,
    Node,
    Pod,
)

USER = "system:serviceaccount:kube-system:daemon-set-controller"

SETTLES = 0.05
"""Seconds from a change to its reconciliation, so that a burst is reconciled once."""

FAILED_FIRST = 1.0
FAILED_LONGEST = 900.0
"""Bounds, in seconds, of the back-off between deletions of a DaemonSet's failed pods on a node."""

_STATUS_ALWAYS_WRITTEN = (
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
)


class DaemonSetController:
    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._deleted = DeletedPods(kube, clock=clock)
        self._failures = FailureBackoff[tuple[str, str]](first=FAILED_FIRST, longest=FAILED_LONGEST)
        self._loop = ControllerLoop("daemon-sets", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.daemon_sets, self._daemon_set_changed),
            (self._informers.revisions, self._revision_changed),
            (self._informers.pods, self._pod_changed),
            (self._informers.nodes, self._node_changed),
        )

    def _enqueue(self, key: str) -> None:
        self._loop.queue.add_after(key, SETTLES)

    def _daemon_set_changed(self, before: DaemonSet | None, after: DaemonSet | None) -> None:
        changed = before or after
        if changed is not None:
            self._enqueue(changed.metadata.key)

    def _revision_changed(
        self, before: ControllerRevision | None, after: ControllerRevision | None
    ) -> None:
        self._enqueue_owner(after or before)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self._deleted.forget(before)
        self._enqueue_owner(after or before)
        if after is not None and after.metadata.owner is None:
            for daemon_set in self._informers.daemon_sets:
                if _adopts(daemon_set, after):
                    self._enqueue(daemon_set.metadata.key)

    def _enqueue_owner(self, obj: Pod | ControllerRevision | None) -> None:
        owner = obj.metadata.owner if obj is not None else None
        if obj is not None and owner is not None and owner.kind == "DaemonSet":
            self._enqueue(f"{obj.metadata.namespace}/{owner.name}")

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if before is not None and after is not None and _placement(before) == _placement(after):
            return
        for daemon_set in self._informers.daemon_sets:
            self._enqueue(daemon_set.metadata.key)

    async def _reconcile(self, key: str) -> float | None:
        daemon_set = self._informers.daemon_sets.get(key)
        if daemon_set is None or daemon_set.metadata.deletion_timestamp:
            return None
        revision = await self._ensure_revision(daemon_set)
        if revision is None:
            return None
        for orphan in self._informers.pods.by_index(
            "owner", orphans_of(daemon_set.metadata.namespace)
        ):
            if _adopts(daemon_set, orphan):
                await self._adopt(daemon_set, orphan)
        retry_after = await self._create_and_delete(daemon_set, revision)
        if daemon_set.spec.update_strategy.type == "RollingUpdate":
            now = self._clock.now()
            pods = self._pods(daemon_set)
            outdated = replaceable(daemon_set, self._nodes(), pods, revision=revision, now=now)
            await slow_start_batch(outdated, self._deleted.delete)
        await self._delete_old_revisions(daemon_set, revision)
        status_after = await self._write_status(daemon_set, revision)
        waits = [seconds for seconds in (retry_after, status_after) if seconds is not None]
        return min(waits, default=None)

    async def _ensure_revision(self, daemon_set: DaemonSet) -> str | None:
        """Return the hash of the current template; None where another reconciliation is needed."""
        namespace = daemon_set.metadata.namespace
        history = self._informers.revisions.by_index("owner", daemon_set.metadata.uid)
        found = find_revision(daemon_set, history)
        if isinstance(found, MissingRevision):
            try:
                written = await self._kube.create(REVISIONS, found.wanted, namespace=namespace)
            except AlreadyExists:
                name = found.wanted["metadata"]["name"]
                written = await self._kube.get(REVISIONS, name, namespace=namespace)
                owner = written.metadata.owner
                if owner is not None and owner.uid == daemon_set.metadata.uid:
                    self._informers.revisions.record_write(written)
                    self._enqueue(daemon_set.metadata.key)
                    return None
            self._informers.revisions.record_write(written)
            return found.hash
        if isinstance(found, OutdatedRevision):
            meta = found.revision.metadata
            written = await self._kube.merge(
                REVISIONS,
                meta.name,
                {"revision": found.number},
                resource_version=meta.resource_version,
                namespace=namespace,
            )
            self._informers.revisions.record_write(written)
        return hash_of(found.revision)

    async def _adopt(self, daemon_set: DaemonSet, pod: Pod) -> None:
        meta = daemon_set.metadata
        reference = owned_by("DaemonSet", meta)
        adopted = await self._kube.merge(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid, "ownerReferences": [reference]}},
            resource_version=pod.metadata.resource_version,
            namespace=meta.namespace,
        )
        self._informers.pods.record_write(adopted)

    async def _create_and_delete(self, daemon_set: DaemonSet, revision: str) -> float | None:
        """Return the seconds until the next failed pod may be replaced, if any is in back-off."""
        now = self._clock.monotonic()
        namespace = daemon_set.metadata.namespace
        plan = plan_pods(DaemonTemplate(daemon_set), self._nodes(), self._pods(daemon_set))

        waits: list[float] = []
        delete = list(plan.delete)
        for failed in plan.failed:
            key = (daemon_set.metadata.uid, failed.spec.node_name)
            wait = self._failures.wait(key, now=now)
            if wait > 0:
                waits.append(wait)
            else:
                self._failures.count(key, now=now)
                delete.append(failed)

        async def create(node: str) -> None:
            pod = pod_for(daemon_set, node, revision=revision)
            created = await self._kube.create(PODS, pod, namespace=namespace)
            self._informers.pods.record_write(created)

        await slow_start_batch(plan.create, create)
        await slow_start_batch(delete, self._deleted.delete)
        return min(waits, default=None)

    async def _delete_old_revisions(self, daemon_set: DaemonSet, revision: str) -> None:
        uid = daemon_set.metadata.uid
        history = self._informers.revisions.by_index("owner", uid)
        pods = self._informers.pods.by_index("owner", uid)
        for old in forgettable(daemon_set, history, pods, current=revision):
            meta = old.metadata
            await self._kube.delete(REVISIONS, meta.name, uid=meta.uid, namespace=meta.namespace)

    async def _write_status(self, daemon_set: DaemonSet, revision: str) -> float | None:
        now = self._clock.now()
        pods = self._pods(daemon_set)
        found = status(daemon_set, self._nodes(), pods, revision=revision, now=now)
        if found != daemon_set.status:
            change = without_zeros(found, keep=_STATUS_ALWAYS_WRITTEN)
            cache = self._informers.daemon_sets
            await merge_status(self._kube, DAEMON_SETS, daemon_set, change, cache=cache)
        waiting = found.number_ready - found.number_available
        return float(daemon_set.spec.min_ready_seconds) if waiting > 0 else None

    def _nodes(self) -> Mapping[str, Node]:
        nodes = sorted(self._informers.nodes, key=lambda node: node.metadata.name)
        return {node.metadata.name: node for node in nodes}

    def _pods(self, daemon_set: DaemonSet) -> PodsByNode:
        owned = self._informers.pods.by_index("owner", daemon_set.metadata.uid)
        return by_node(self._deleted.apply_to(owned))


def _adopts(daemon_set: DaemonSet, pod: Pod) -> bool:
    meta = pod.metadata
    return (
        meta.namespace == daemon_set.metadata.namespace
        and not pod.deleting
        and bool(daemon_set.spec.selector)
        and from_object(daemon_set.spec.selector)(meta.labels)
    )


def _placement(node: Node) -> object:
    """Everything about a node that decides whether a DaemonSet's pod runs there."""
    taints = [(taint.key, taint.value, taint.effect) for taint in node.spec.taints]
    return node.metadata.uid, node.metadata.labels, taints
