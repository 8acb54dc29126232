"""Decide about the pod that confirms the validation of a node. Pure.

The record of the node asks for the pod by the order of the validation, which its name contains. Its
outcome is written to the Node once and for all, then the pod is deleted. A pod that disappears
before is made again, and so is one that the kubelet did not admit: it proves nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import NodeRecord, UpgradeState, ValidationPod
from libs.contracts.words import excerpt
from libs.kube.views import ContainerStatus
from libs.policy.render.validation_pod import validation_pod_name
from services.driver.cluster.resources import Node, ValidatingPod

MAX_MESSAGE: Final = 400
"""Characters of what is told."""
_FAILED: Final = UpgradeState.UPGRADE_FAILED
_STARTING: Final = frozenset(("ContainerCreating", "PodInitializing", ""))


class CreatePod(msgspec.Struct, frozen=True, kw_only=True):
    order: str
    resource: str
    """What the pod asks for one of."""


class DeletePod(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Write what became of the pod to the Node; None removes what is there."""

    outcome: ValidationPod | None


PodStep = CreatePod | DeletePod | Tell


def pod_steps(
    name: str,
    node: Node | None,
    pods: Iterable[ValidatingPod],
    *,
    refused: str = "",
    is_paused: bool = False,
) -> Iterator[PodStep]:
    """Yield what is to be done about a node.

    `refused`: why the API server refused the pod. While paused, none is made.
    """
    record = _record(node)
    order = record.validation_pod if record is not None else ""
    uid = node.metadata.uid if node is not None else ""
    told = node.validation_pod if node is not None else None
    told = told if told is not None and told.is_of(uid, order) else None
    is_over = told is not None and told.passed is not None
    wanted = validation_pod_name(uid, order) if _is_awaited(record) and not is_over else ""
    outcome = told
    live = [pod for pod in pods if not pod.metadata.deletion_timestamp]
    for pod in live:
        is_wanted = pod.metadata.name == wanted and pod.is_made_for(name, uid)
        if is_wanted:
            outcome = judge(pod, node_uid=uid, order=order)
        if not is_wanted or was_not_admitted(pod):
            yield DeletePod(name=pod.metadata.name, uid=pod.metadata.uid)
    if node is None:
        return
    if wanted and not live:
        why = refused or ("" if node.gpu_resource else "the node has no GPU that pods can ask for")
        if node.gpu_resource and not is_paused:
            yield CreatePod(order=order, resource=node.gpu_resource)
        outcome = ValidationPod(node_uid=uid, order=order, message=why) if why else told
    elif order and not is_over and record is not None and record.state == _FAILED:
        message = told.message if told is not None else "it did not end in time"
        outcome = ValidationPod(node_uid=uid, order=order, passed=False, message=message)
    if outcome != node.validation_pod:
        yield Tell(outcome=outcome)


def was_not_admitted(pod: ValidatingPod) -> bool:
    """Whether the kubelet refused the pod before a container of it began: it proves nothing."""
    status = pod.status
    has_begun = any(each.state.terminated is not None for each in status.container_statuses)
    return status.phase == "Failed" and not has_begun and status.reason != "DeadlineExceeded"


def judge(pod: ValidatingPod, *, node_uid: str, order: str) -> ValidationPod | None:
    """Return what became of a pod; None while there is nothing to say."""
    status = pod.status
    container = next(iter(status.container_statuses), None)
    ended = container.state.terminated if container is not None else None
    passed: bool | None = None
    if was_not_admitted(pod):
        message = f"the kubelet did not admit the pod: {status.reason or 'it gave no reason'}"
    elif status.phase == "Succeeded":
        passed, message = True, "a pod that asked for a GPU computed on it"
    elif status.phase == "Failed":
        said = ended.message.strip() if ended is not None else ""
        passed, message = False, said or status.reason or "its container failed"
    else:
        message = _waiting(container)
    if passed is None and not message:
        return None
    message = excerpt(message, MAX_MESSAGE)
    return ValidationPod(node_uid=node_uid, order=order, passed=passed, message=message)


def _waiting(container: ContainerStatus | None) -> str:
    waiting = container.state.waiting if container is not None else None
    if waiting is None or waiting.reason in _STARTING:
        return ""
    return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason


def _record(node: Node | None) -> NodeRecord | None:
    if node is None or not node.record:
        return None
    try:
        record = decode(NodeRecord, node.record.encode())
    except MalformedMessage:
        return None
    return record if record.node_uid == node.metadata.uid else None


def _is_awaited(record: NodeRecord | None) -> bool:
    """Whether a validation of the present lease waits for its pod."""
    if record is None or record.state != UpgradeState.VALIDATION_REQUIRED:
        return False
    return record.validation_pod.startswith(f"{record.token}.")
