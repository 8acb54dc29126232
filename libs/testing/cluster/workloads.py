"""Which pods a ReplicaSet and a Job want, and their status. Pure."""

from collections.abc import Sequence

import msgspec

from libs.kube.client import Kube
from libs.kube.views import format_time, parse_time, set_condition
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
    JOBS,
    PODS,
    REPLICA_SETS,
    Job,
    JobStatus,
    Pod,
    ReplicaSet,
    ReplicaSetStatus,
)

FIRST_RETRY = 10.0
LONGEST_RETRY = 600.0


class ReplicaPlan(msgspec.Struct, frozen=True):
    create: int
    delete: tuple[Pod, ...] = ()


def plan_replicas(replica_set: ReplicaSet, pods: Sequence[Pod]) -> ReplicaPlan:
    """Replace a terminating pod at once; of too many, delete the least useful."""
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


def finished(job: Job) -> bool:
    ended = ("Complete", "Failed")
    return any(each.type in ended and each.status == "True" for each in job.status.conditions)


def job_status(job: Job, pods: Sequence[Pod], *, now: float) -> JobStatus:
    succeeded = int(any(pod.status.phase == "Succeeded" for pod in pods))
    failed = sum(pod.status.phase == "Failed" for pod in pods)
    active = [pod for pod in pods if not pod.over and not pod.deleting]
    conditions = job.status.conditions
    completed = job.status.completion_time
    if succeeded:
        for kind in ("SuccessCriteriaMet", "Complete"):
            conditions = set_condition(
                conditions,
                type=kind,
                status="True",
                reason="CompletionsReached",
                message="Reached expected number of succeeded pods",
                generation=0,
                now=now,
            )
        completed = completed or format_time(now)
    elif failed > job.spec.backoff_limit:
        for kind in ("FailureTarget", "Failed"):
            conditions = set_condition(
                conditions,
                type=kind,
                status="True",
                reason="BackoffLimitExceeded",
                message="Job has reached the specified backoff limit",
                generation=0,
                now=now,
            )
    return JobStatus(
        start_time=job.status.start_time or format_time(now),
        completion_time=completed,
        active=0 if succeeded else len(active),
        succeeded=succeeded,
        failed=failed,
        ready=sum(pod.ready for pod in active),
        terminating=_terminating(pods),
        conditions=conditions,
    )


def job_pod_delay(job: Job, pods: Sequence[Pod], *, now: float) -> float | None:
    """Return the seconds until a new pod is due; None where none is needed.

    A deleted pod is replaced at once, a failed one after a back-off.
    """
    if finished(job) or any(pod.status.phase == "Succeeded" for pod in pods):
        return None
    if any(not pod.over and not pod.deleting for pod in pods):
        return None
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    if not failed:
        return 0.0
    wait = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** (len(failed) - 1))
    return max(0.0, max(map(_ended_at, failed)) + wait - now)


def new_pod(owner: ReplicaSet | Job) -> Plain:
    meta, template = owner.metadata, owner.spec.template
    if isinstance(owner, ReplicaSet):
        return pod_of(template, meta, owner=owned_by("ReplicaSet", meta), labels={})
    return pod_of(template, meta, owner=owned_by("Job", meta, group="batch"), labels={})


def _terminating(pods: Sequence[Pod]) -> int:
    return sum(pod.deleting and not pod.over for pod in pods)


def _least_useful_first(pods: Sequence[Pod]) -> list[Pod]:
    """Unbound pods, then pods that are not ready, then younger ones."""
    young_first = sorted(pods, key=_creation, reverse=True)
    return sorted(young_first, key=lambda pod: (bool(pod.spec.node_name), pod.ready))


def _creation(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.creation_timestamp, pod.metadata.name)


def _ended_at(pod: Pod) -> float:
    ends = [
        parse_time(status.state.terminated.finished_at)
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at
    ]
    return max(ends, default=parse_time(pod.metadata.creation_timestamp))


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
