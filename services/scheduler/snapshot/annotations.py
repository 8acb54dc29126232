"""What stands on a Node: lease, record and wishes of people, typed. Pure."""

from typing import Final, TypeVar

from libs.contracts import node as keys
from libs.contracts.message import MalformedMessage, Message, decode
from libs.contracts.node import NodeLease, NodeRecord, NodeRequest
from libs.policy.deploy_labels import DEPLOY_DRIVER, DEPLOY_OPERANDS
from libs.rollout.views.node import MalformedAnnotation
from services.scheduler.resources import Node

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


def lease(node: Node) -> NodeLease | MalformedAnnotation | None:
    """Who may change it."""
    return _typed(NodeLease, annotation(node, keys.LEASE_ANNOTATION))


def record(node: Node) -> NodeRecord | MalformedAnnotation | None:
    """Where it stands."""
    return _typed(NodeRecord, annotation(node, keys.RECORD_ANNOTATION))


def request(node: Node) -> NodeRequest | None:
    """What a person asks for once."""
    said = annotation(node, keys.REQUEST_ANNOTATION)
    return NodeRequest(said) if said else None


def is_excluded(node: Node) -> bool:
    """Whether a person wants no driver of ours on it."""
    labels = node.metadata.labels
    return "false" in (labels.get(DEPLOY_DRIVER), labels.get(DEPLOY_OPERANDS))


def is_control_plane(node: Node) -> bool:
    """Whether it carries the control plane."""
    return any(key in node.metadata.labels for key in _CONTROL_PLANE)


def is_ready(node: Node) -> bool:
    """Whether its kubelet is well, as the API server has it."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def _typed(kind: type[M], text: str) -> M | MalformedAnnotation | None:
    if not text:
        return None
    try:
        return decode(kind, text.encode())
    except MalformedMessage as error:
        return MalformedAnnotation(str(error))
