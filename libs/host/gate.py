"""The gate of a driver pod: files below `/run/sluice/gate` of the machine.

A driver pod's gate writes a request and waits for an answer with the pod's own uid. Only the driver
agent of the node answers (docs/states.md#gate), and decides when. A reboot empties the folder.
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import msgspec

from libs.host.tree import Tree, read_json

FOLDER: Final = "/run/sluice/gate"
REQUESTS: Final = f"{FOLDER}/asking"
ANSWERS: Final = f"{FOLDER}/answers"


class GateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A driver pod at the gate."""

    pod_uid: str
    label: str
    """The driver label that its DaemonSet was made for."""
    install_digest: str = ""
    """What its installation depends on; empty in a pod of an earlier release."""
    started: float
    """Start of the gate's container: of a pod's requests the latest counts."""


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The pod may go on: from now on it counts as a running driver."""

    pod_uid: str
    label: str
    at: float


GateFile = TypeVar("GateFile", GateRequest, GateAnswer)


def put_request(tree: Tree, request: GateRequest) -> None:
    _write(tree, REQUESTS, request)


def list_requests(tree: Tree) -> tuple[GateRequest, ...]:
    """Return the requests of all pods since boot, answered ones included, oldest first."""
    found = (_read(tree, f"{REQUESTS}/{name}", GateRequest) for name in tree.names(REQUESTS))
    return tuple(sorted(filter(None, found), key=lambda each: (each.started, each.pod_uid)))


def put_answer(tree: Tree, answer: GateAnswer) -> None:
    _write(tree, ANSWERS, answer)


def list_answers(tree: Tree) -> tuple[GateAnswer, ...]:
    """Return the answers given since boot, oldest first."""
    found = (_read(tree, f"{ANSWERS}/{name}", GateAnswer) for name in tree.names(ANSWERS))
    return tuple(sorted(filter(None, found), key=lambda each: (each.at, each.pod_uid)))


def waiting_request(
    requests: Iterable[GateRequest], answers: Collection[GateAnswer]
) -> GateRequest | None:
    """Return the latest unanswered request, unless another pod was answered since.

    A pod does not withdraw its request when it ends; it has ended where a later pod was answered.
    """
    answered = {answer.pod_uid for answer in answers}
    since = max((answer.at for answer in answers), default=0.0)
    waiting = (each for each in requests if each.pod_uid not in answered and each.started >= since)
    return max(waiting, key=lambda each: (each.started, each.pod_uid), default=None)


def is_open(tree: Tree, request: GateRequest) -> bool:
    """Return whether an answer names this pod and the label of its request."""
    answer = _read(tree, f"{ANSWERS}/{request.pod_uid}", GateAnswer)
    return answer is not None and answer.label == request.label


def remove_pod(tree: Tree, pod_uid: str) -> None:
    """Remove the request and the answer of a pod that is gone."""
    for folder in (ANSWERS, REQUESTS):
        tree.remove(f"{folder}/{_file_name(pod_uid)}")


def _write(tree: Tree, path: str, content: GateRequest | GateAnswer) -> None:
    tree.write(f"{path}/{_file_name(content.pod_uid)}", msgspec.json.encode(content))


def _read(tree: Tree, path: str, kind: type[GateFile]) -> GateFile | None:
    """Return the content of a file; None where it is missing, malformed or of another pod.

    A driver pod can put anything here: what is not a file of the gate is passed over.
    """
    content = read_json(tree, path, kind)
    return content if content is not None and content.pod_uid == path.rpartition("/")[2] else None


def _file_name(pod_uid: str) -> str:
    if not pod_uid or "/" in pod_uid or pod_uid.startswith("."):
        raise ValueError(f"{pod_uid!r} is not a pod uid: it cannot name a file of the gate")
    return pod_uid
