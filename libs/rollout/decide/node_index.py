"""The nodes of a fleet, and in which pools' records each of them counts.

A node is stepped by one pool and may count in more: in that which selects it, in that whose upgrade
it is in, and in any that has it in flight. Must not know what it counts for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from libs.contracts.node import NodeRecord
from libs.rollout.decide.pool_decider import PoolDecider
from libs.rollout.node_writes import current_record, upgrade_lease
from libs.rollout.views.node import NodeView


class NodeIndex:
    """By name, by uid, and by place in flight."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.names: dict[str, str] = {}
        """By uid."""
        self._in_flight: defaultdict[str, set[str]] = defaultdict(set)
        """By uid: keys of pools whose Rollout has it in flight."""

    def put(self, node: NodeView) -> str:
        """It is this now; the uid of another Node of its name, which is gone with that."""
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
        """It is gone; its uid, if it was there."""
        had = self.nodes.pop(name, None)
        if had is None:
            return ""
        del self.names[had.uid]
        return had.uid

    def update_in_flight(
        self, pool: str, *, out: Iterable[str] = (), into: Iterable[str] = ()
    ) -> None:
        """The Rollout of a pool has these in flight no more, and those from now on."""
        for uid in out:
            self._in_flight[uid].discard(pool)
        for uid in into:
            self._in_flight[uid].add(pool)

    def pools_in_flight(self, uid: str) -> set[str]:
        """Keys of pools whose Rollout has this uid in flight."""
        return self._in_flight.get(uid) or set()

    def names_of(self, uids: Iterable[str]) -> list[str]:
        """The names of those that are there."""
        return [self.names[uid] for uid in uids if uid in self.names]

    def pools_of(
        self, node: NodeView, pools: Mapping[str, PoolDecider]
    ) -> tuple[str, tuple[str, ...]]:
        """The pool whose rules it follows now (empty: nobody's), and all in which it counts."""
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
        """It was begun in another pool than that which selects it now."""
        if upgrade_lease(node) is not None:
            return record.pool
        taken_over = pools[record.pool].view.gone and selected
        belongs = bool(node.driver_label) or not selected
        return record.pool if belongs and not taken_over else selected


def _maker(node: NodeView, pools: Mapping[str, PoolDecider]) -> str:
    """Whose driver it is told to run, where no record says whose it is; else the first pool's."""
    for key in sorted(pools):
        builds = pools[key].view.builds.values()
        if any(build.label == node.driver_label for each in builds for build in each.values()):
            return key
    return min(pools, default="")
