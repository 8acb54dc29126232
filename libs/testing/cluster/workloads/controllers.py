"""The ReplicaSet and Job controllers (`plan` decides)."""

from libs.kube.client import Kube
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop, slow_start_batch
from libs.testing.cluster.expectations import DeletedPods
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import merge_status, without_zeros
from libs.testing.cluster.views import JOBS, PODS, REPLICA_SETS, Job, Pod, ReplicaSet
from libs.testing.cluster.workloads.plan import (
    finished,
    job_pod_delay,
    job_status,
    new_pod,
    plan_replicas,
    replicas_status,
)

REPLICA_SET_USER = "system:serviceaccount:kube-system:replicaset-controller"
JOB_USER = "system:serviceaccount:kube-system:job-controller"

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


class JobController:
    """Creates a pod, and another after each failure, until one has succeeded."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._loop = ControllerLoop("jobs", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.jobs, self._job_changed), (self._informers.pods, self._pod_changed)
        )

    def _job_changed(self, _before: Job | None, after: Job | None) -> None:
        if after is not None:
            self._loop.queue.add_after(after.metadata.key, SETTLES)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if (key := _owner_key(after or before, "Job")) is not None:
            self._loop.queue.add_after(key, SETTLES)

    async def _reconcile(self, key: str) -> float | None:
        job = self._informers.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or finished(job):
            return None
        now = self._clock.now()
        pods = self._informers.pods.by_index("owner", job.metadata.uid)
        status = job_status(job, pods, now=now)
        if status != job.status:
            change = without_zeros(status, keep=("ready", "terminating"))
            job = await merge_status(self._kube, JOBS, job, change, cache=self._informers.jobs)
        delay = job_pod_delay(job, pods, now=now)
        if delay != 0.0:
            return delay
        created = await self._kube.create(PODS, new_pod(job), namespace=job.metadata.namespace)
        self._informers.pods.record_write(created)
        return None


def _owner_key(pod: Pod | None, kind: str) -> str | None:
    owner = pod.metadata.owner if pod is not None else None
    if pod is None or owner is None or owner.kind != kind:
        return None
    return f"{pod.metadata.namespace}/{owner.name}"
