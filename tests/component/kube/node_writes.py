"""Writes to a node as Sluice sends them: all desired fields in one guarded apply."""

from typing import Any

from libs.kube.client import Preconditions
from libs.kube.resources import NODES
from libs.kube.views import Node
from tests.component.kube.sandbox import Kube, settled_node

LABEL = "sluice.dev/driver"
REQUEST = "sluice.dev/request"


def desired_node(
    node: str, *, cordoned: bool | None = None, **metadata: dict[str, str]
) -> dict[str, Any]:
    """Return a node with the fields that Sluice desires."""
    spec = {} if cordoned is None else {"spec": {"unschedulable": cordoned}}
    return {"metadata": {"name": node, **metadata}, **spec}


def preconditions(node: Node) -> Preconditions:
    """Return preconditions on the uid and the revision of the node."""
    return Preconditions(uid=node.metadata.uid, resource_version=node.metadata.resource_version)


async def apply_node(
    kube: Kube, node: str, *, force: bool = True, cordoned: bool | None = None, **metadata: Any
) -> Node:
    """Apply to the node once the controllers have no more to write."""
    now = await settled_node(kube, node)
    wanted = desired_node(node, cordoned=cordoned, **metadata)
    return await kube.apply(NODES, wanted, force=force, preconditions=preconditions(now))
