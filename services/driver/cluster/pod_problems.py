"""What is wrong with the pods of a DaemonSet that lacks some, in the kubelet's words. Pure.

It explains and decides nothing, so it is looked for only where pods are lacking, and only in one
page of them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from libs.kube.views import ContainerStatus, Pod
from libs.policy.observed import PodProblem

_PATIENT: Final = frozenset(("ContainerCreating", "PodInitializing", ""))
"""What a container waits for that will come by itself."""


def find_pod_problems(daemon_set: str, uid: str, pods: Iterable[Pod]) -> Iterator[PodProblem]:
    """One for each of its pods that will not get better by itself."""
    for pod in pods:
        owned = any(owner.uid == uid for owner in pod.metadata.owner_references)
        cause = _cause(pod) if owned and not pod.metadata.deletion_timestamp else ""
        if cause:
            yield PodProblem(daemon_set=daemon_set, node=pod.spec.node_name, cause=cause)


def _cause(pod: Pod) -> str:
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        if cause := _waits(container):
            return f"{container.name}: {cause}"
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    if status.phase == "Failed":
        return status.reason or "it failed"
    return ""


def _waits(container: ContainerStatus) -> str:
    waiting = container.state.waiting
    if waiting is None or waiting.reason in _PATIENT:
        return ""
    return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
