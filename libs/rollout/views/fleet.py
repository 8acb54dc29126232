"""The moment of a decision, with what can be trusted at it; and all pools and nodes together."""

from collections.abc import Mapping

import msgspec

from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """Where views come from, and how sure we are of it."""

    proved: float
    """When it last showed that it is current."""
    revision: str = ""
    probed: float | None = None
    """When we last asked it to; None: never."""


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """What we see with; it changes without any object changing."""

    sources: Mapping[str, SourceState] = {}
    """By name, those of Kubernetes: nodes, pods, rollouts, policies, daemonsets."""
    bus_down_since: float | None = None
    """NATS, or our reading of it, is away since then."""
    bus_outages: tuple[tuple[float, float], ...] = ()
    """When it was away before: from, to."""
    foreign_operator: str = ""
    """The GPU Operator that is at work here too, in words; empty: none is."""


class Instant(msgspec.Struct, frozen=True, kw_only=True):
    """A moment, who leads at it, and with what sight."""

    at: float
    epoch: int
    """Ours, as leader."""
    visibility: Visibility = Visibility()


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is decided over at once. Mappings keep their order: it is no matter."""

    pools: Mapping[str, PoolView]
    """By key, also of policies that are gone while a node or a Rollout names them."""
    nodes: Mapping[str, NodeView]
    """By name."""
