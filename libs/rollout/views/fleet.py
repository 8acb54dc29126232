"""All pools and nodes together, and the moment of the decision."""

from collections.abc import Mapping

import msgspec

from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    proved: float
    """When the source last proved that it is current."""
    revision: str = ""
    probed: float | None = None
    """When the source was last probed; None: never."""


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """How current the inputs are; changes without any object changing."""

    sources: Mapping[str, SourceState] = {}
    """Kubernetes sources by name: nodes, pods, rollouts, policies, daemonsets."""
    bus_down_since: float | None = None
    """NATS, or our subscription, is down since then."""
    bus_outages: tuple[tuple[float, float], ...] = ()
    """Earlier outages: from, to."""
    foreign_operator: str = ""
    """Description of a GPU Operator that runs in the cluster too; empty: none does."""


class Instant(msgspec.Struct, frozen=True, kw_only=True):
    """A moment, with the leader's epoch and the state of the inputs."""

    at: float
    epoch: int
    """Our epoch, as leader."""
    visibility: Visibility = Visibility()


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is decided together. The order of the mappings does not matter."""

    pools: Mapping[str, PoolView]
    """By key; also pools of deleted policies while a node or a Rollout names them."""
    nodes: Mapping[str, NodeView]
    """By name."""
    budgets: Mapping[str, int] | None = None
    """How many evictions each disruption budget allows now; None: they are not known. No decision
    depends on it: the API server refuses."""
