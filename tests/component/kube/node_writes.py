"""How we write to a node: all that we want of it, in one apply that is guarded."""

from typing import Any

from libs.kube.client import Kube, Preconditions
from libs.kube.resources import NODES
from libs.kube.views import Node
from tests.component.kube.sandbox import settled_node

LABEL = "sluice.dev/driver"
REQUEST = "sluice.dev/request"


def desired_node(
    node: str, *, cordoned: bool | None = None, **metadata: dict[str, str]
) -> dict[str, Any]:
    """All that we want of a node."""
    spec = {} if cordoned is None else {"spec": {"unschedulable": cordoned}}
    return {"metadata": {"name": node, **metadata}, **spec}


def preconditions(node: Node) -> Preconditions:
    """That very node, at that very revision."""
    return Preconditions(uid=node.metadata.uid, resource_version=node.metadata.resource_version)


async def apply_node(
    kube: Kube, node: str, *, force: bool = True, cordoned: bool | None = None, **metadata: Any
) -> Node:
    """Apply as we do: to the node as it is when nobody else is about to write."""
    now = await settled_node(kube, node)
    wanted = desired_node(node, cordoned=cordoned, **metadata)
    return await kube.apply(NODES, wanted, force=force, preconditions=preconditions(now))
