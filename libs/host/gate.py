"""The gate of a driver pod, as files below `/run/sluice/gate` of the machine.

A driver pod's gate asks and waits for an answer that names its own pod; the driver agent of the
node alone answers (docs/states.md#gate). The folder goes with the boot. Here are the two files and
nothing of when an answer may be given.
"""

import os
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import msgspec

from libs.host.tree import Tree

FOLDER: Final = "/run/sluice/gate"
REQUESTS: Final = f"{FOLDER}/asking"
ANSWERS: Final = f"{FOLDER}/answers"


class GateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A driver pod at the gate."""

    pod_uid: str
    label: str
    """The driver label that its DaemonSet was made for."""
    started: float
    """Start of the gate's container: of a pod's requests the latest counts."""


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """That pod may go on: from now on it counts as a running driver."""

    pod_uid: str
    label: str
    at: float


GateFile = TypeVar("GateFile", GateRequest, GateAnswer)


def put_request(tree: Tree, request: GateRequest) -> None:
    """Stand at the gate."""
    _write(tree, f"{REQUESTS}/{request.pod_uid}", request)


def list_requests(tree: Tree) -> tuple[GateRequest, ...]:
    """Who stands at the gate, or once stood there, in the order of asking."""
    found = (_read(tree, f"{REQUESTS}/{name}", GateRequest) for name in tree.names(REQUESTS))
    return tuple(sorted((one for one in found if one), key=lambda one: (one.started, one.pod_uid)))


def put_answer(tree: Tree, answer: GateAnswer) -> None:
    """Let that pod in."""
    _write(tree, f"{ANSWERS}/{answer.pod_uid}", answer)


def list_answers(tree: Tree) -> tuple[GateAnswer, ...]:
    """Who was let in during this boot, in the order of the answers."""
    found = (_read(tree, f"{ANSWERS}/{name}", GateAnswer) for name in tree.names(ANSWERS))
    return tuple(sorted((one for one in found if one), key=lambda one: (one.at, one.pod_uid)))


def waiting_request(
    requests: Iterable[GateRequest], answers: Collection[GateAnswer]
) -> GateRequest | None:
    """Who stands at the gate, of those who asked: the latest, unless another was let in since.

    A pod that went before it was let in takes nothing back; where another is let in, it has gone.
    """
    let_in = {one.pod_uid for one in answers}
    since = max((one.at for one in answers), default=0.0)
    standing = (one for one in requests if one.pod_uid not in let_in and one.started >= since)
    return max(standing, key=lambda one: (one.started, one.pod_uid), default=None)


def is_open(tree: Tree, request: GateRequest) -> bool:
    """Whether this pod may go on: an answer names it, with the label that it asks for."""
    found = _read(tree, f"{ANSWERS}/{request.pod_uid}", GateAnswer)
    return found is not None and found.label == request.label


def remove_pod(tree: Tree, pod_uid: str) -> None:
    """The pod is gone: neither its question nor its answer means anything any more."""
    for folder in (ANSWERS, REQUESTS):
        (tree.at(folder) / _name(pod_uid)).unlink(missing_ok=True)


def _write(tree: Tree, path: str, said: GateRequest | GateAnswer) -> None:
    """The whole file or none of it, also after the power was cut."""
    folder = tree.at(path.rpartition("/")[0])
    folder.mkdir(parents=True, exist_ok=True)
    name = _name(said.pod_uid)
    unfinished = folder / f".{name}"
    with unfinished.open("wb") as file:
        file.write(msgspec.json.encode(said))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / name)


def _read(tree: Tree, path: str, kind: type[GateFile]) -> GateFile | None:
    """What the file says of the pod that it is named for; half a file says nothing."""
    data = tree.data(path)
    try:
        said = None if data is None else msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        return None
    return said if said is not None and said.pod_uid == path.rpartition("/")[2] else None


def _name(pod_uid: str) -> str:
    if not pod_uid or "/" in pod_uid or pod_uid.startswith("."):
        raise ValueError(f"{pod_uid!r} is no uid of a pod: no file of the gate is named so")
    return pod_uid
