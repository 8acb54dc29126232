"""What of a Node counts here: which one it is, what it runs, and which pool it belongs to."""

from collections.abc import Iterable
from sys import intern
from typing import Final

import msgspec

from sluice.contracts.message import Unreadable, decode
from sluice.contracts.node import DRIVER_LABEL, RECORD_ANNOTATION, Record
from sluice.kube import views
from sluice.kube.resources import Resource
from sluice.policy.checks import OWNER_LABEL, PRESENT_LABEL
from sluice.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from sluice.policy.owners import NodeFacts
from sluice.policy.pools import pool_key

SELECTOR: Final = f"{PRESENT_LABEL}=true"
"""Nodes with GPUs: on these a driver is to be proven."""


class Node(views.Object, frozen=True, kw_only=True):
    """There may be thousands: what does not count is dropped as they are read."""

    status: views.NodeStatus = views.NodeStatus()
    pool: str = ""
    """The key of its pool; empty: its labels are kept, by which a policy may select it."""
    driver: str = ""
    """The label of the driver that it is told to run."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        if metadata.labels or metadata.annotations:
            msgspec.structs.force_setattr(self, "pool", _pool(metadata))
            msgspec.structs.force_setattr(self, "driver", metadata.labels.get(DRIVER_LABEL, ""))
        kept = {} if self.pool else {intern(key): word for key, word in metadata.labels.items()}
        lean = msgspec.structs.replace(metadata, labels=kept, annotations={}, managed_fields=())
        status = views.NodeStatus(node_info=self.status.node_info)
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "status", status)


NODES: Final = Resource(
    plural="nodes", kind="Node", namespaced=False, ours_to_create=False, view=Node
)


def _pool(metadata: views.Metadata) -> str:
    """As the node's record says it; where there is none yet, by the owner that selected it."""
    try:
        record = decode(Record, metadata.annotations.get(RECORD_ANNOTATION, "").encode())
    except Unreadable:
        record = None
    if record is not None and record.pool:
        return record.pool
    owner = metadata.labels.get(OWNER_LABEL, "")
    return pool_key(NVIDIA_DRIVER.name, owner) if owner else ""


def unsaid(nodes: Iterable[Node]) -> list[NodeFacts]:
    """Those of which neither record nor owner says the pool."""
    return [
        NodeFacts(name=one.metadata.name, labels=one.metadata.labels)
        for one in nodes
        if not one.pool
    ]
