"""What of a Node counts here: which one it is, what it runs, and which pool it belongs to."""

from sys import intern
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.kube import views
from libs.kube.resources import Resource
from libs.policy.pool_index import recorded_pool
from libs.policy.validation import PRESENT_LABEL

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
            msgspec.structs.force_setattr(self, "pool", recorded_pool(metadata))
            msgspec.structs.force_setattr(self, "driver", metadata.labels.get(DRIVER_LABEL, ""))
        kept = {} if self.pool else {intern(key): word for key, word in metadata.labels.items()}
        lean = msgspec.structs.replace(metadata, labels=kept, annotations={}, managed_fields=())
        status = views.NodeStatus(node_info=self.status.node_info)
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "status", status)


NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=Node)
