"""What stands on a Node: lease, record and wishes of people, typed. Pure."""

from typing import Final, TypeVar

from libs.contracts import node as keys
from libs.contracts.message import Message, Unreadable, decode
from libs.contracts.node import Lease, Record, Request
from libs.policy.deploying import DRIVER, OPERANDS
from libs.rollout.views.node import Garbled
from services.scheduler.things import Node

M = TypeVar("M", bound=Message)

_CONTROL_PLANE: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


def annotation(node: Node, key: str) -> str:
    """Empty is absent."""
    return node.metadata.annotations.get(key, "")


def label(node: Node, key: str) -> str:
    """Empty is absent."""
    return node.metadata.labels.get(key, "")


def lease(node: Node) -> Lease | Garbled | None:
    """Who may change it."""
    return _typed(Lease, annotation(node, keys.LEASE_ANNOTATION))


def record(node: Node) -> Record | Garbled | None:
    """Where it stands."""
    return _typed(Record, annotation(node, keys.RECORD_ANNOTATION))


def request(node: Node) -> Request | None:
    """What a person asks for once."""
    said = annotation(node, keys.REQUEST_ANNOTATION)
    return Request(said) if said else None


def excluded(node: Node) -> bool:
    """Whether a person wants no driver of ours on it."""
    labels = node.metadata.labels
    return "false" in (labels.get(DRIVER), labels.get(OPERANDS))


def steers(node: Node) -> bool:
    """Whether it carries the control plane."""
    return any(key in node.metadata.labels for key in _CONTROL_PLANE)


def is_ready(node: Node) -> bool:
    """Whether its kubelet is well, as the API server has it."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def _typed(kind: type[M], text: str) -> M | Garbled | None:
    if not text:
        return None
    try:
        return decode(kind, text.encode())
    except Unreadable as error:
        return Garbled(str(error))
