"""The ReplicaSet controller: the pods of a ReplicaSet, and its status."""

from collections.abc import Sequence

import msgspec

from libs.kube.client import Kube
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop, DeletedPods, slow_start_batch
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import (
    Plain,
    labels_of,
    merge_status,
    owned_by,
    pod_of,
    without_zeros,
)
from libs.testing.cluster.views import (
    PODS,
    REPLICA_SETS,
    Pod,
    ReplicaSet,
    ReplicaSetStatus,
)


class ReplicaPlan(msgspec.Struct, frozen=True):
    create: int
    delete: tuple[Pod, ...] = ()


def plan_replicas(replica_set: ReplicaSet, pods: Sequence[Pod]) -> ReplicaPlan:
    """Replace terminating pods at once; of excess pods, delete the least useful."""
    active = [pod for pod in pods if not pod.deleting and not pod.over]
    missing = replica_set.spec.replicas - len(active)
    if missing >= 0:
        return ReplicaPlan(missing)
    return ReplicaPlan(0, tuple(_least_useful_first(active)[:-missing]))


def replicas_status(replica_set: ReplicaSet, pods: Sequence[Pod]) -> ReplicaSetStatus:
    active = [pod for pod in pods if not pod.deleting and not pod.over]
    ready = sum(pod.ready for pod in active)
    labels = labels_of(replica_set.spec.template)
    return ReplicaSetStatus(
        observed_generation=replica_set.metadata.generation,
        replicas=len(active),
        fully_labeled_replicas=sum(labels.items() <= pod.metadata.labels.items() for pod in active),
        ready_replicas=ready,
        available_replicas=ready,
        terminating_replicas=_terminating(pods),
    )


def new_pod(owner: ReplicaSet) -> Plain:
    meta = owner.metadata
    return pod_of(owner.spec.template, meta, owner=owned_by("ReplicaSet", meta), labels={})


def _terminating(pods: Sequence[Pod]) -> int:
    return sum(pod.deleting and not pod.over for pod in pods)


def _least_useful_first(pods: Sequence[Pod]) -> list[Pod]:
    """Unbound pods, then pods that are not ready, then younger ones."""
    young_first = sorted(pods, key=_creation, reverse=True)
    return sorted(young_first, key=lambda pod: (bool(pod.spec.node_name), pod.ready))


def _creation(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.creation_timestamp, pod.metadata.name)


REPLICA_SET_USER = "system:serviceaccount:kube-system:replicaset-controller"
SETTLES = 0.05
"""Seconds from a change to its reconciliation."""


class ReplicaSetController:
    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._deleted = DeletedPods(kube, clock=clock)
        self._loop = ControllerLoop("replica-sets", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.replica_sets, self._replica_set_changed),
            (self._informers.pods, self._pod_changed),
        )

    def _replica_set_changed(self, _before: ReplicaSet | None, after: ReplicaSet | None) -> None:
        if after is not None:
            self._loop.queue.add_after(after.metadata.key, SETTLES)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self._deleted.forget(before)
        if (key := _owner_key(after or before, "ReplicaSet")) is not None:
            self._loop.queue.add_after(key, SETTLES)

    async def _reconcile(self, key: str) -> None:
        replica_set = self._informers.replica_sets.get(key)
        if replica_set is None or replica_set.metadata.deletion_timestamp:
            return
        plan = plan_replicas(replica_set, self._pods(replica_set))

        async def create(_number: int) -> None:
            namespace = replica_set.metadata.namespace
            created = await self._kube.create(PODS, new_pod(replica_set), namespace=namespace)
            self._informers.pods.record_write(created)

        await slow_start_batch(range(plan.create), create)
        await slow_start_batch(plan.delete, self._deleted.delete)
        status = replicas_status(replica_set, self._pods(replica_set))
        if status != replica_set.status:
            change = without_zeros(status, keep=("replicas", "terminatingReplicas"))
            cache = self._informers.replica_sets
            await merge_status(self._kube, REPLICA_SETS, replica_set, change, cache=cache)

    def _pods(self, replica_set: ReplicaSet) -> list[Pod]:
        uid = replica_set.metadata.uid
        return self._deleted.apply_to(self._informers.pods.by_index("owner", uid))


def _owner_key(pod: Pod | None, kind: str) -> str | None:
    owner = pod.metadata.owner if pod is not None else None
    if pod is None or owner is None or owner.kind != kind:
        return None
    return f"{pod.metadata.namespace}/{owner.name}"
