"""Finds the pods of a DaemonSet that will not start without help. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from libs.kube.views import ContainerStatus, Pod
from libs.policy.observed import PodProblem

_TRANSIENT: Final = frozenset(("ContainerCreating", "PodInitializing", ""))
"""Reasons to wait that end by themselves."""


def find_pod_problems(daemon_set: str, uid: str, pods: Iterable[Pod]) -> Iterator[PodProblem]:
    """Yield the problems of pods that the DaemonSet with this uid owns."""
    for pod in pods:
        owned = any(owner.uid == uid for owner in pod.metadata.owner_references)
        cause = _cause(pod) if owned and not pod.metadata.deletion_timestamp else ""
        if cause:
            yield PodProblem(daemon_set=daemon_set, node=pod.spec.node_name, cause=cause)


def _cause(pod: Pod) -> str:
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        if cause := _waiting_cause(container):
            return f"{container.name}: {cause}"
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    if status.phase == "Failed":
        return status.reason or "it failed"
    return ""


def _waiting_cause(container: ContainerStatus) -> str:
    waiting = container.state.waiting
    if waiting is None or waiting.reason in _TRANSIENT:
        return ""
    return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
