"""Which pods a ReplicaSet and a Job want, and their status. Pure."""

from collections.abc import Sequence

import msgspec

from libs.kube.views import format_time, parse_time, set_condition
from libs.testing.cluster.templates import Plain, labels_of, owned_by, pod_of
from libs.testing.cluster.views import Job, JobStatus, Pod, ReplicaSet, ReplicaSetStatus

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
