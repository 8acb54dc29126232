"""What of a Node counts here: who it is, and which pool it belongs to."""

from sys import intern
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.kube import views
from libs.kube.resources import Resource
from libs.policy.pool_index import recorded_pool
from libs.policy.render.agents import AGENTS

SELECTOR: Final = next(
    "=".join(agent.selector) for agent in AGENTS if agent.component is Writer.TELEMETRY
)
"""Nodes on which a telemetry agent runs."""


class Node(views.Object, frozen=True, kw_only=True):
    """There may be thousands: what does not count is dropped as they are read."""

    pool: str = ""
    """The key of its pool; empty: its labels are kept, by which a policy may select it."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        if metadata.labels or metadata.annotations:
            msgspec.structs.force_setattr(self, "pool", recorded_pool(metadata))
        kept = {} if self.pool else {intern(key): word for key, word in metadata.labels.items()}
        lean = msgspec.structs.replace(metadata, labels=kept, annotations={}, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)


NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=Node)
