"""What the step of one node is decided on: the node, its pool, and the moment."""

import msgspec

from libs.contracts.node import NodeLease, NodeRecord
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class NodeCase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node under the rules of its pool at one moment."""

    node: NodeView
    pool: PoolView
    now: Instant
    record: NodeRecord | None
    """Where the node stands; None: it has no record, or only that of an earlier Node."""
    lease: NodeLease | None
    """The lease of an operation in progress; None: the node is at rest, or a person has it."""
