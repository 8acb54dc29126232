"""The nodes of a fleet, and the pools in which each of them counts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from libs.contracts.node import NodeRecord
from libs.rollout.pool.pool_decider import PoolDecider
from libs.rollout.views.node import NodeView


class NodeIndex:
    """The nodes of a fleet, and the pools in which each of them counts.

    One pool governs a node. It also counts in the pool that selects it, the pool of its upgrade,
    and every pool that has it in flight.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.names: dict[str, str] = {}
        """By uid."""
        self.in_flight: defaultdict[str, set[str]] = defaultdict(set)
        """By uid: keys of the pools with the node in flight in their Rollout."""

    def put(self, node: NodeView) -> str:
        """Add or replace the node; return the uid of an earlier Node of this name, else empty."""
        previous = self.nodes.get(node.name)
        replaced = self.drop(node.name) if previous and previous.uid != node.uid else ""
        self.nodes[node.name] = node
        self.names[node.uid] = node.name
        return replaced

    def drop(self, name: str) -> str:
        """Remove the node; return its uid if it was there, else empty."""
        previous = self.nodes.pop(name, None)
        if previous is None:
            return ""
        del self.names[previous.uid]
        return previous.uid

    def update_in_flight(
        self, pool: str, *, out: Iterable[str] = (), into: Iterable[str] = ()
    ) -> None:
        for uid in out:
            self.in_flight[uid].discard(pool)
        for uid in into:
            self.in_flight[uid].add(pool)

    def names_of(self, uids: Iterable[str]) -> list[str]:
        return [self.names[uid] for uid in uids if uid in self.names]

    def pools_of(
        self, node: NodeView, pools: Mapping[str, PoolDecider]
    ) -> tuple[str, tuple[str, ...]]:
        """Return the governing pool (empty: none), and all pools in which the node counts."""
        record, in_flight = node.current_record, self.in_flight.get(node.uid)
        selected = node.pool if node.pool in pools else ""
        governing = selected
        if record is not None and record.pool != selected and record.pool in pools:
            governing = _governing_of_record(node, record, selected, pools)
        elif record is None and not selected and not in_flight and node.is_managed:
            governing = _pool_of_label(node, pools)
        if not in_flight and governing == selected:
            return governing, (governing,) if governing else ()
        if not governing and in_flight:
            governing = min(in_flight)
        keys = {governing, selected, *(in_flight or ())}
        return governing, tuple(sorted(keys - {""}))


def _governing_of_record(
    node: NodeView, record: NodeRecord, selected: str, pools: Mapping[str, PoolDecider]
) -> str:
    """Return the governing pool of a node with a record of another pool than the selecting one."""
    if node.upgrade_lease is not None:
        return record.pool
    taken_over = pools[record.pool].view.gone and selected
    belongs = bool(node.driver_label) or not selected
    return record.pool if belongs and not taken_over else selected


def _pool_of_label(node: NodeView, pools: Mapping[str, PoolDecider]) -> str:
    """Return the pool of the node's driver label, else the first pool."""
    for key in sorted(pools):
        builds = pools[key].view.builds.values()
        if any(
            build.label == node.driver_label for variants in builds for build in variants.values()
        ):
            return key
    return min(pools, default="")
