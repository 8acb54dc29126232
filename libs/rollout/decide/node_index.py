"""The nodes of a fleet, and the pools in which each of them counts.

One pool governs a node. It also counts in the pool that selects it, the pool of its upgrade, and
every pool that has it in flight.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from libs.contracts.node import NodeRecord
from libs.rollout.decide.pool_decider import PoolDecider
from libs.rollout.node_writes import current_record, upgrade_lease
from libs.rollout.views.node import NodeView


class NodeIndex:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.names: dict[str, str] = {}
        """By uid."""
        self._in_flight: defaultdict[str, set[str]] = defaultdict(set)
        """By uid: keys of pools whose Rollout has it in flight."""

    def put(self, node: NodeView) -> str:
        """Add or replace the node; return the uid of an earlier Node of this name, else empty."""
        had = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self.names[node.uid] = node.name
        return self._renamed(had, node)

    def _renamed(self, had: NodeView | None, node: NodeView) -> str:
        if had is None or had.uid == node.uid:
            return ""
        del self.names[had.uid]
        return had.uid

    def drop(self, name: str) -> str:
        """Remove the node; return its uid if it was there, else empty."""
        had = self.nodes.pop(name, None)
        if had is None:
            return ""
        del self.names[had.uid]
        return had.uid

    def update_in_flight(
        self, pool: str, *, out: Iterable[str] = (), into: Iterable[str] = ()
    ) -> None:
        for uid in out:
            self._in_flight[uid].discard(pool)
        for uid in into:
            self._in_flight[uid].add(pool)

    def pools_in_flight(self, uid: str) -> set[str]:
        return self._in_flight.get(uid) or set()

    def names_of(self, uids: Iterable[str]) -> list[str]:
        return [self.names[uid] for uid in uids if uid in self.names]

    def pools_of(
        self, node: NodeView, pools: Mapping[str, PoolDecider]
    ) -> tuple[str, tuple[str, ...]]:
        """Return the governing pool (empty: none), and all pools in which the node counts."""
        record, flying = current_record(node), self._in_flight.get(node.uid)
        selected = node.pool if node.pool in pools else ""
        stepper = selected
        if record is not None and record.pool != selected and record.pool in pools:
            stepper = self._torn(node, record, selected, pools)
        elif record is None and not selected and not flying and node.is_managed:
            stepper = _maker(node, pools)
        if not flying and stepper == selected:
            return stepper, (stepper,) if stepper else ()
        if not stepper and flying:
            stepper = min(flying)
        known = {stepper, selected, *(flying or ())}
        return stepper, tuple(sorted(known - {""}))

    def _torn(
        self, node: NodeView, record: NodeRecord, selected: str, pools: Mapping[str, PoolDecider]
    ) -> str:
        """Return the governing pool of a node whose record is of another pool than selects it."""
        if upgrade_lease(node) is not None:
            return record.pool
        taken_over = pools[record.pool].view.gone and selected
        belongs = bool(node.driver_label) or not selected
        return record.pool if belongs and not taken_over else selected


def _maker(node: NodeView, pools: Mapping[str, PoolDecider]) -> str:
    """Return the pool whose driver label the node has, else the first pool."""
    for key in sorted(pools):
        builds = pools[key].view.builds.values()
        if any(build.label == node.driver_label for each in builds for build in each.values()):
            return key
    return min(pools, default="")
