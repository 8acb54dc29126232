"""The ReplicaSet and Job controllers at work: they read the caches, decide, and carry it out."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.views import View
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop, slow_start_batch
from libs.testing.cluster.expectations import DeletedPods
from libs.testing.cluster.informers import ClusterInformers
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
"""Seconds between a change and a look at it."""


class ReplicaSetController:
    """So many pods, wherever the scheduler finds room."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._doomed = DeletedPods(clock)
        self._work = ControllerLoop("replica-sets", self._reconcile, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.replica_sets.on_change(self._changed))
            stack.callback(self._seen.pods.on_change(self._pod_changed))
            for replica_set in self._seen.replica_sets:
                self._changed(None, replica_set)
            await self._work.run()

    def _changed(self, _before: ReplicaSet | None, after: ReplicaSet | None) -> None:
        if after is not None:
            self._work.queue.add_after(after.metadata.key, SETTLES)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self._doomed.forget(before)
        if (key := _owner_key(after or before, "ReplicaSet")) is not None:
            self._work.queue.add_after(key, SETTLES)

    async def _reconcile(self, key: str) -> None:
        replica_set = self._seen.replica_sets.get(key)
        if replica_set is None or replica_set.metadata.deletion_timestamp:
            return
        meta = replica_set.metadata
        wanted = plan_replicas(replica_set, self._pods(replica_set))

        async def create(_number: int) -> None:
            made = await self._kube.create(PODS, new_pod(replica_set), namespace=meta.namespace)
            self._seen.pods.record_write(made)

        await slow_start_batch(range(wanted.create), create)
        await slow_start_batch(wanted.delete, self._delete)
        status = replicas_status(replica_set, self._pods(replica_set))
        if status == replica_set.status:
            return
        change = _as_patch(status, always=("replicas", "terminatingReplicas"))
        written = await self._kube.merge(
            REPLICA_SETS,
            meta.name,
            {"status": change},
            resource_version=meta.resource_version,
            namespace=meta.namespace,
            subresource="status",
        )
        self._seen.replica_sets.record_write(written)

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace)
        except NotFound:
            return
        self._doomed.mark(pod)

    def _pods(self, replica_set: ReplicaSet) -> list[Pod]:
        return self._doomed.apply_to(self._seen.pods.by_index("owner", replica_set.metadata.uid))


class JobController:
    """A pod until one has succeeded."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._work = ControllerLoop("jobs", self._reconcile, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.jobs.on_change(self._changed))
            stack.callback(self._seen.pods.on_change(self._pod_changed))
            for job in self._seen.jobs:
                self._changed(None, job)
            await self._work.run()

    def _changed(self, _before: Job | None, after: Job | None) -> None:
        if after is not None:
            self._work.queue.add_after(after.metadata.key, SETTLES)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if (key := _owner_key(after or before, "Job")) is not None:
            self._work.queue.add_after(key, SETTLES)

    async def _reconcile(self, key: str) -> float | None:
        job = self._seen.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or finished(job):
            return None
        meta = job.metadata
        now = self._clock.now()
        pods = self._seen.pods.by_index("owner", meta.uid)
        status = job_status(job, pods, now=now)
        if status != job.status:
            job = await self._kube.merge(
                JOBS,
                meta.name,
                {"status": _as_patch(status, always=("ready", "terminating"))},
                resource_version=meta.resource_version,
                namespace=meta.namespace,
                subresource="status",
            )
            self._seen.jobs.record_write(job)
        wait = job_pod_delay(job, pods, now=now)
        if wait == 0.0:
            made = await self._kube.create(PODS, new_pod(job), namespace=meta.namespace)
            self._seen.pods.record_write(made)
            return None
        return wait


def _as_patch(status: View, *, always: Sequence[str]) -> dict[str, Any]:
    """What is not always written is left out at zero, as the API does."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {key: value if value or key in always else None for key, value in fields.items()}


def _owner_key(pod: Pod | None, kind: str) -> str | None:
    owner = pod.metadata.owner if pod is not None else None
    if pod is None or owner is None or owner.kind != kind:
        return None
    return f"{pod.metadata.namespace}/{owner.name}"
