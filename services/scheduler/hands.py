"""The writes of one leader: each is counted, and its answer enters the caches at once.

Each is one request, or few, that the API server carries out whole or not at all. When it is right
to make it is not known here.
"""

from collections.abc import Awaitable
from typing import TypeVar

from libs.kube.client import Eviction, Guard, Kube
from libs.kube.errors import Conflict, KubeError, NotFound, UnknownKind
from libs.rollout.decision import PodRef, WriteNode, WriteRollout
from services.scheduler import things, wishes
from services.scheduler.meters import SchedulerMeters
from services.scheduler.sources import Sources
from services.scheduler.things import Node, Rollout

T = TypeVar("T")

WITHIN = 3.0
"""Seconds for whatever changes something."""


class Hands:
    """`kube` lets changes out only in one term."""

    def __init__(self, kube: Kube, *, sources: Sources, meters: SchedulerMeters) -> None:
        self._kube = kube
        self._nodes = sources.nodes.cache
        self._rollouts = sources.rollouts.cache
        self._meters = meters

    # Nodes.

    async def apply(self, name: str, write: WriteNode) -> Node:
        """The whole of what we own of a Node, by force, if it is still as it was decided on."""
        view = await self._counted(
            "node",
            self._kube.apply(
                things.NODES,
                wishes.node(name, write.applied),
                force=True,
                guard=Guard(uid=write.uid, resource_version=write.revision),
                within=WITHIN,
            ),
        )
        self._nodes.learn(view)
        return view

    async def look_again(self, name: str) -> None:
        """After a conflict, or no answer: how the Node is now."""
        try:
            self._nodes.learn(await self._kube.get(things.NODES, name, within=WITHIN))
        except KubeError:
            return  # the watch will tell

    # Rollouts.

    async def record(self, write: WriteRollout) -> Rollout:
        """The status of a pool's Rollout, by compare-and-set; or one that is made."""
        if not write.uid:
            there = await self._counted(
                "rollout",
                self._kube.create(things.ROLLOUTS, wishes.new_rollout(write), within=WITHIN),
            )
            self._rollouts.learn(there)
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
        if write.finalized:  # it protects what is recorded, so it comes first
            there = await self._protect(there, finalized=True)
        if there.status != write.status:
            there = await self._put(there, write)
        if not write.finalized:
            there = await self._protect(there, finalized=False)
        return there

    async def look_at_rollout(self, pool: str) -> None:
        """The same of a Rollout."""
        try:
            self._rollouts.learn(await self._kube.get(things.ROLLOUTS, pool, within=WITHIN))
        except KubeError:
            return

    async def _put(self, there: Rollout, write: WriteRollout) -> Rollout:
        view = await self._counted(
            "rollout",
            self._kube.replace(
                things.ROLLOUTS, wishes.status(there, write), subresource="status", within=WITHIN
            ),
        )
        self._rollouts.learn(view)
        return view

    async def _protect(self, there: Rollout, *, finalized: bool) -> Rollout:
        change = wishes.finalizers(there, finalized=finalized)
        if change is None:
            return there
        view = await self._counted(
            "rollout",
            self._kube.merge(
                things.ROLLOUTS,
                there.metadata.name,
                change,
                resource_version=there.metadata.resource_version,
                within=WITHIN,
            ),
        )
        self._rollouts.learn(view)
        return view

    # Pods.

    async def evict(self, pod: PodRef, *, by_force: bool) -> Eviction:
        """Ask that it go; by force means without grace, for nobody may delete pods of people."""
        return await self._counted(
            "eviction",
            self._kube.evict(
                pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                grace=0 if by_force else None,
                within=WITHIN,
            ),
        )

    async def delete(self, pod: PodRef) -> None:
        """A driver pod, and not one of the same name after it."""
        try:
            await self._counted(
                "pod",
                self._kube.delete(
                    things.PODS, pod.name, namespace=pod.namespace, uid=pod.uid, within=WITHIN
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
            self._meters.wrote(kind, "conflict" if isinstance(error, Conflict) else "failed")
            raise
        self._meters.wrote(kind, "done")
        return answer


def _state_of(there: Rollout) -> tuple[str, str]:
    return there.metadata.uid, there.metadata.resource_version
