"""The writes of one leader: each is counted, and its answer enters the caches at once.

Each is one request, or few, that the API server carries out whole or not at all. When it is right
to make it is not known here.
"""

from collections.abc import Awaitable
from typing import TypeVar

from libs.kube.client import EvictionResult, Kube, Preconditions
from libs.kube.errors import Conflict, KubeError, NotFound, UnknownKind
from libs.rollout.decision import PodRef, WriteNode, WriteRollout
from services.scheduler import resources
from services.scheduler.effects import objects
from services.scheduler.informers import Informers
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.resources import Node, Rollout

T = TypeVar("T")

TIMEOUT = 3.0
"""Seconds for whatever changes something."""


class Writes:
    """`kube` lets changes out only in one term."""

    def __init__(self, kube: Kube, *, informers: Informers, metrics: SchedulerMetrics) -> None:
        self._kube = kube
        self._nodes = informers.nodes.cache
        self._rollouts = informers.rollouts.cache
        self._meters = metrics

    # Nodes.

    async def apply_node(self, name: str, write: WriteNode) -> Node:
        """The whole of what we own of a Node, by force, if it is still as it was decided on."""
        view = await self._counted(
            "node",
            self._kube.apply(
                resources.NODES,
                objects.node_object(name, write.applied),
                force=True,
                preconditions=Preconditions(uid=write.uid, resource_version=write.revision),
                within=TIMEOUT,
            ),
        )
        self._nodes.record_write(view)
        return view

    async def refresh_node(self, name: str) -> None:
        """After a conflict, or no answer: how the Node is now."""
        try:
            self._nodes.record_write(await self._kube.get(resources.NODES, name, within=TIMEOUT))
        except KubeError:
            return  # the watch will tell

    # Rollouts.

    async def write_rollout(self, write: WriteRollout) -> Rollout:
        """The status of a pool's Rollout, by compare-and-set; or one that is made."""
        if not write.uid:
            there = await self._counted(
                "rollout",
                self._kube.create(
                    resources.ROLLOUTS, objects.rollout_object(write), within=TIMEOUT
                ),
            )
            self._rollouts.record_write(there)
            return await self._put(there, write)
        there = self._rollouts.get(write.pool)
        if there is None or _state_of(there) != (write.uid, write.revision):
            raise Conflict(
                f"write Rollout {write.pool}",
                "it is not any more as it was decided on",
                code=409,
                reason="Conflict",
                claims=(),
            )
        if write.has_finalizer:  # it protects what is recorded, so it comes first
            there = await self._protect(there, finalized=True)
        if there.status != write.status:
            there = await self._put(there, write)
        if not write.has_finalizer:
            there = await self._protect(there, finalized=False)
        return there

    async def refresh_rollout(self, pool: str) -> None:
        """The same of a Rollout."""
        try:
            self._rollouts.record_write(
                await self._kube.get(resources.ROLLOUTS, pool, within=TIMEOUT)
            )
        except KubeError:
            return

    async def _put(self, there: Rollout, write: WriteRollout) -> Rollout:
        view = await self._counted(
            "rollout",
            self._kube.replace(
                resources.ROLLOUTS,
                objects.rollout_status(there, write),
                subresource="status",
                within=TIMEOUT,
            ),
        )
        self._rollouts.record_write(view)
        return view

    async def _protect(self, there: Rollout, *, finalized: bool) -> Rollout:
        change = objects.finalizer_patch(there, finalized=finalized)
        if change is None:
            return there
        view = await self._counted(
            "rollout",
            self._kube.merge(
                resources.ROLLOUTS,
                there.metadata.name,
                change,
                resource_version=there.metadata.resource_version,
                within=TIMEOUT,
            ),
        )
        self._rollouts.record_write(view)
        return view

    # Pods.

    async def evict_pod(self, pod: PodRef, *, by_force: bool) -> EvictionResult:
        """Ask that it go; by force means without grace, for nobody may delete pods of people."""
        return await self._counted(
            "eviction",
            self._kube.evict(
                pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                grace=0 if by_force else None,
                within=TIMEOUT,
            ),
        )

    async def delete_pod(self, pod: PodRef) -> None:
        """A driver pod, and not one of the same name after it."""
        try:
            await self._counted(
                "pod",
                self._kube.delete(
                    resources.PODS, pod.name, namespace=pod.namespace, uid=pod.uid, within=TIMEOUT
                ),
            )
        except UnknownKind:
            raise
        except (NotFound, Conflict):
            return  # it is gone

    async def _counted(self, kind: str, request: Awaitable[T]) -> T:
        try:
            answer = await request
        except KubeError as error:
            self._meters.count_write(kind, "conflict" if isinstance(error, Conflict) else "failed")
            raise
        self._meters.count_write(kind, "done")
        return answer


def _state_of(there: Rollout) -> tuple[str, str]:
    return there.metadata.uid, there.metadata.resource_version
