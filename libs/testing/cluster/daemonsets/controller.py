"""The DaemonSet controller at work: it reads the caches, decides, and carries it out."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, NotFound
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.cluster.controller_loop import ControllerLoop, slow_start_batch
from libs.testing.cluster.daemonsets import revisions, rolling_update
from libs.testing.cluster.daemonsets.plan import (
    DaemonPodPlan,
    DaemonTemplate,
    PodsByNode,
    by_node,
    plan_pods,
    pod_for,
)
from libs.testing.cluster.daemonsets.status import as_patch, status
from libs.testing.cluster.expectations import DeletedPods, FailureBackoff
from libs.testing.cluster.informers import ClusterInformers, orphans_of
from libs.testing.cluster.templates import owned_by
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
"""Seconds between a change and a look at it: a burst is one look, as in a real controller."""

FAILED_FIRST = 1.0
FAILED_LONGEST = 900.0
"""Seconds between two deletions of failed pods of a DaemonSet on one node."""


class DaemonSetController:
    """One pod on each node that a DaemonSet selects."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._doomed = DeletedPods(clock)
        self._failures = FailureBackoff[tuple[str, str]](first=FAILED_FIRST, longest=FAILED_LONGEST)
        self._work = ControllerLoop("daemon-sets", self._reconcile, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.daemon_sets.on_change(self._changed))
            stack.callback(self._seen.revisions.on_change(self._revision_changed))
            stack.callback(self._seen.pods.on_change(self._pod_changed))
            stack.callback(self._seen.nodes.on_change(self._node_changed))
            for daemon_set in self._seen.daemon_sets:
                self._look_at(daemon_set.metadata.key)
            await self._work.run()

    # What makes it look.

    def _look_at(self, key: str) -> None:
        self._work.queue.add_after(key, SETTLES)

    def _changed(self, before: DaemonSet | None, after: DaemonSet | None) -> None:
        for each in (before, after):
            if each is not None:
                self._look_at(each.metadata.key)
                return

    def _revision_changed(
        self, before: ControllerRevision | None, after: ControllerRevision | None
    ) -> None:
        self._look_at_owner(after or before)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self._doomed.forget(before)
        self._look_at_owner(after or before)
        if after is not None and after.metadata.owner is None:
            for daemon_set in self._seen.daemon_sets:
                if _claims(daemon_set, after):
                    self._look_at(daemon_set.metadata.key)

    def _look_at_owner(self, thing: Pod | ControllerRevision | None) -> None:
        owner = thing.metadata.owner if thing is not None else None
        if thing is not None and owner is not None and owner.kind == "DaemonSet":
            self._look_at(f"{thing.metadata.namespace}/{owner.name}")

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if before is not None and after is not None and _same_to_pods(before, after):
            return
        for daemon_set in self._seen.daemon_sets:
            self._look_at(daemon_set.metadata.key)

    # What it does.

    async def _reconcile(self, key: str) -> float | None:
        daemon_set = self._seen.daemon_sets.get(key)
        if daemon_set is None or daemon_set.metadata.deletion_timestamp:
            return None
        revision = await self._revision(daemon_set)
        if revision is None:
            return None
        for orphan in self._seen.pods.by_index("owner", orphans_of(daemon_set.metadata.namespace)):
            if _claims(daemon_set, orphan):
                await self._adopt(daemon_set, orphan)
        again = await self._arrange(daemon_set, revision)
        if daemon_set.spec.update_strategy.type == "RollingUpdate":
            await self._roll(daemon_set, revision)
        await self._forget_old(daemon_set, revision)
        return _sooner(again, await self._report(daemon_set, revision))

    async def _revision(self, daemon_set: DaemonSet) -> str | None:
        """The hash of the present template; None when it is known only at the next look."""
        namespace = daemon_set.metadata.namespace
        history = self._seen.revisions.by_index("owner", daemon_set.metadata.uid)
        found = revisions.find_revision(daemon_set, history)
        if isinstance(found, revisions.MissingRevision):
            try:
                made = await self._kube.create(REVISIONS, found.wanted, namespace=namespace)
            except AlreadyExists:
                await self._collided(daemon_set, found)
                return None
            self._seen.revisions.record_write(made)
            return found.hash
        if isinstance(found, revisions.OutdatedRevision):
            meta = found.revision.metadata
            made = await self._kube.merge(
                REVISIONS,
                meta.name,
                {"revision": found.number},
                resource_version=meta.resource_version,
                namespace=namespace,
            )
            self._seen.revisions.record_write(made)
        return revisions.hash_of(found.revision)

    async def _collided(self, daemon_set: DaemonSet, missing: revisions.MissingRevision) -> None:
        """The name is taken: by our own creation, not seen yet, or by another template."""
        namespace = daemon_set.metadata.namespace
        name = missing.wanted["metadata"]["name"]
        holder = await self._kube.get(REVISIONS, name, namespace=namespace)
        owner = holder.metadata.owner
        mine = owner is not None and owner.uid == daemon_set.metadata.uid
        if mine and not revisions.collides(daemon_set, holder):
            self._seen.revisions.record_write(holder)
            self._look_at(daemon_set.metadata.key)
            return
        collisions = daemon_set.status.collision_count + 1
        await self._write_status(daemon_set, {"collisionCount": collisions})

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
        self._seen.pods.record_write(adopted)

    async def _arrange(self, daemon_set: DaemonSet, revision: str) -> float | None:
        """One pod where one belongs; gives when a failed one may be replaced that may not yet."""
        now = self._clock.monotonic()
        wanted = plan_pods(DaemonTemplate(daemon_set), self._nodes(), self._pods(daemon_set))
        later: float | None = None
        doomed = list(wanted.delete)
        for pod in wanted.failed:
            place = (daemon_set.metadata.uid, pod.spec.node_name)
            wait = self._failures.wait(place, now=now)
            if wait > 0:
                later = _sooner(later, wait)
            else:
                self._failures.count(place, now=now)
                doomed.append(pod)
        await self._carry_out(daemon_set, DaemonPodPlan(wanted.create, tuple(doomed)), revision)
        return later

    async def _carry_out(self, daemon_set: DaemonSet, wanted: DaemonPodPlan, revision: str) -> None:
        namespace = daemon_set.metadata.namespace

        async def create(node: str) -> None:
            pod = pod_for(daemon_set, node, revision=revision)
            self._seen.pods.record_write(await self._kube.create(PODS, pod, namespace=namespace))

        await slow_start_batch(wanted.create, create)
        await slow_start_batch(wanted.delete, self._delete)

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace)
        except NotFound:
            return
        self._doomed.mark(pod)

    async def _roll(self, daemon_set: DaemonSet, revision: str) -> None:
        now = self._clock.now()
        pods = self._pods(daemon_set)
        await slow_start_batch(
            rolling_update.replaceable(daemon_set, self._nodes(), pods, revision=revision, now=now),
            self._delete,
        )

    async def _forget_old(self, daemon_set: DaemonSet, revision: str) -> None:
        uid = daemon_set.metadata.uid
        history = self._seen.revisions.by_index("owner", uid)
        pods = self._seen.pods.by_index("owner", uid)
        for old in revisions.forgettable(daemon_set, history, pods, current=revision):
            meta = old.metadata
            await self._kube.delete(REVISIONS, meta.name, uid=meta.uid, namespace=meta.namespace)

    async def _report(self, daemon_set: DaemonSet, revision: str) -> float | None:
        now = self._clock.now()
        found = status(
            daemon_set, self._nodes(), self._pods(daemon_set), revision=revision, now=now
        )
        if found != daemon_set.status:
            await self._write_status(daemon_set, as_patch(found))
        waiting = found.number_ready - found.number_available
        return float(daemon_set.spec.min_ready_seconds) if waiting > 0 else None

    async def _write_status(self, daemon_set: DaemonSet, change: Mapping[str, object]) -> None:
        meta = daemon_set.metadata
        written = await self._kube.merge(
            DAEMON_SETS,
            meta.name,
            {"status": change},
            resource_version=meta.resource_version,
            namespace=meta.namespace,
            subresource="status",
        )
        self._seen.daemon_sets.record_write(written)

    # What it goes by.

    def _nodes(self) -> Mapping[str, Node]:
        found = {node.metadata.name: node for node in self._seen.nodes}
        return dict(sorted(found.items()))

    def _pods(self, daemon_set: DaemonSet) -> PodsByNode:
        mine = self._seen.pods.by_index("owner", daemon_set.metadata.uid)
        return by_node(self._doomed.apply_to(mine))


def _claims(daemon_set: DaemonSet, pod: Pod) -> bool:
    meta = pod.metadata
    return (
        meta.namespace == daemon_set.metadata.namespace
        and not pod.deleting
        and bool(daemon_set.spec.selector)
        and from_object(daemon_set.spec.selector)(meta.labels)
    )


def _same_to_pods(before: Node, after: Node) -> bool:
    return (
        before.metadata.uid == after.metadata.uid
        and before.metadata.labels == after.metadata.labels
        and _bars(before) == _bars(after)
    )


def _bars(node: Node) -> Sequence[tuple[str, str, str]]:
    return [(taint.key, taint.value, taint.effect) for taint in node.spec.taints]


def _sooner(one: float | None, other: float | None) -> float | None:
    times = [time for time in (one, other) if time is not None]
    return min(times, default=None)
