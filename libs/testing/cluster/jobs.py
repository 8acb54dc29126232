"""The Job controller: the pods of a Job until enough have succeeded, and its status.

A pod that was evicted is replaced, and its end is not counted: the finalizer with which a real
controller counts each pod is not simulated.
"""

from collections.abc import Sequence

import msgspec

from libs.kube.client import Kube
from libs.kube.views import format_time, set_condition
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop, FailureBackoff, slow_start_batch
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import Plain, merge_status, owned_by, pod_of, without_zeros
from libs.testing.cluster.views import JOBS, PODS, Job, JobStatus, Pod

USER = "system:serviceaccount:kube-system:job-controller"
SETTLES = 0.05
"""Seconds from a change to its reconciliation."""
FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 600.0
NAME_LABEL = "batch.kubernetes.io/job-name"


def is_finished(status: JobStatus) -> bool:
    return any(
        each.type in ("Complete", "Failed") and each.status == "True" for each in status.conditions
    )


def missing_pods(job: Job, pods: Sequence[Pod]) -> int:
    """Return how many pods to create: never more at once than the Job's parallelism."""
    running = sum(not pod.over for pod in pods)
    left = job.spec.completions - _count(pods, "Succeeded")
    return max(0, min(job.spec.parallelism, left) - running)


def job_status(job: Job, pods: Sequence[Pod], *, now: float) -> JobStatus:
    succeeded, failed = _count(pods, "Succeeded"), _count(pods, "Failed")
    status = JobStatus(
        active=sum(not pod.over and not pod.deleting for pod in pods),
        ready=sum(pod.ready and not pod.over and not pod.deleting for pod in pods),
        succeeded=succeeded,
        failed=failed,
        start_time=job.status.start_time or format_time(now),
        conditions=job.status.conditions,
    )
    if succeeded >= job.spec.completions:
        ended = _with_condition(status, "Complete", "CompletionsReached", "", now=now)
        return msgspec.structs.replace(ended, completion_time=format_time(now))
    if failed > job.spec.backoff_limit:
        message = "Job has reached the specified backoff limit"
        return _with_condition(status, "Failed", "BackoffLimitExceeded", message, now=now)
    return status


def _with_condition(
    status: JobStatus, kind: str, reason: str, message: str, *, now: float
) -> JobStatus:
    conditions = set_condition(
        status.conditions,
        type=kind,
        status="True",
        reason=reason,
        message=message,
        generation=0,
        now=now,
    )
    return msgspec.structs.replace(status, conditions=conditions)


def _count(pods: Sequence[Pod], phase: str) -> int:
    return sum(pod.status.phase == phase for pod in pods)


def new_pod(owner: Job) -> Plain:
    meta = owner.metadata
    labels = {NAME_LABEL: meta.name, "job-name": meta.name}
    reference = owned_by("Job", meta, group="batch")
    return pod_of(owner.spec.template, meta, owner=reference, labels=labels)


class JobController:
    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._backoff = FailureBackoff[str](first=FIRST_BACKOFF, longest=LONGEST_BACKOFF)
        self._loop = ControllerLoop("jobs", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.jobs, self._job_changed),
            (self._informers.pods, self._pod_changed),
        )

    def _job_changed(self, _before: Job | None, after: Job | None) -> None:
        if after is not None:
            self._loop.queue.add_after(after.metadata.key, SETTLES)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        owner = pod.metadata.owner if pod is not None else None
        if pod is None or owner is None or owner.kind != "Job":
            return
        key = f"{pod.metadata.namespace}/{owner.name}"
        if after is not None and after.status.phase == "Failed" and not (before and before.over):
            self._backoff.count(key, now=self._clock.monotonic())
        self._loop.queue.add_after(key, SETTLES)

    async def _reconcile(self, key: str) -> float | None:
        job = self._informers.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or is_finished(job.status):
            return None
        pods, now = self._informers.pods, self._clock.now()
        status = job_status(job, pods.by_index("owner", job.metadata.uid), now=now)
        wait = self._backoff.wait(key, now=self._clock.monotonic())
        if not is_finished(status) and not wait:
            missing = missing_pods(job, pods.by_index("owner", job.metadata.uid))

            async def create(_number: int) -> None:
                namespace = job.metadata.namespace
                pods.record_write(await self._kube.create(PODS, new_pod(job), namespace=namespace))

            await slow_start_batch(range(missing), create)
            status = job_status(job, pods.by_index("owner", job.metadata.uid), now=now)
        if status != job.status:
            change = without_zeros(status, keep=())
            await merge_status(self._kube, JOBS, job, change, cache=self._informers.jobs)
        return wait or None
