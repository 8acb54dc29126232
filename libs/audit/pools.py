"""Size, unavailable nodes and limits of each pool at any position of the journal.

Replayed from the revisions and the `PoolFacts`. A node under a lease belongs to the pool that its
record names, any other node to the pool by the facts or else by the policies.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from libs.audit.membership import PoolMembership
from libs.audit.nodes import NodeHistory, ReplayedNode, Series
from libs.audit.object_writes import PolicyChange, RolloutWrite
from libs.audit.timeline import NodeChange, Timeline
from libs.contracts.node import Operation
from libs.contracts.records import PoolFacts
from libs.policy.pool import pre_installed_key
from libs.policy.shapes import scaled_value


class NodeAvailability(msgspec.Struct, frozen=True):
    pool: str = ""
    unavailable: bool = False
    doubtful: bool = False
    """Whether the scheduler may have considered the node unavailable without any revision."""


NO_POOL: Final = NodeAvailability()


class PoolSize(NamedTuple):
    nodes: int = 0
    unavailable: int = 0
    largest: int = 0
    """The largest number of nodes so far."""


class PoolAvailability:
    """Replays the pools in one pass over the timeline."""

    def __init__(self, timeline: Timeline, facts: Sequence[PoolFacts]) -> None:
        self._timeline = timeline
        self._pools_with_facts = {item.key for item in facts}
        self._future_facts = sorted(facts, key=lambda item: item.since)[::-1]
        self._facts: dict[str, PoolFacts] = {}
        """The facts of each pool at the position being replayed."""
        self._members_by_facts: dict[str, str] = {}
        self._driverless: frozenset[str] = frozenset()
        self._doubtful: frozenset[str] = frozenset()
        self._ever_driverless = _union(item.driverless for item in facts)
        self._membership = PoolMembership()
        self._recorded_pools: dict[str, str] = {}
        self._members_ever: dict[str, set[str]] = defaultdict(set)
        self._limits: dict[str, list[PoolFacts]] = defaultdict(list)
        self._bases: dict[str, Series[int]] = defaultdict(lambda: Series(0))
        self._sizes: dict[str, Series[PoolSize]] = defaultdict(lambda: Series(PoolSize()))
        self._nodes: dict[str, Series[NodeAvailability]] = defaultdict(lambda: Series(NO_POOL))
        self._own_writes: dict[str, Series[str]] = defaultdict(lambda: Series(""))
        """Node uids by pool."""
        self._deletions = Series("")
        self._start_time = timeline.time_of(0) if timeline.revisions else 0.0
        self._replay()

    def limits(self, pool: str, *, since: int, until: int) -> list[PoolFacts]:
        """Return all limits that held between two positions; none where they are unknown."""
        known, time_of = self._limits.get(pool, []), self._timeline.time_of
        end = time_of(until) if until >= 0 else self._start_time
        last = bisect_right(known, end, key=lambda item: item.since)
        # Which of two limits of one time held at a position is unknown.
        first = bisect_left(known, time_of(since), key=lambda item: item.since)
        return known[max(first - 1, 0) : last]

    def size(self, pool: str, position: int) -> PoolSize:
        return self._sizes[pool].at(position)

    def base(self, pool: str, position: int) -> int:
        """Return the base of a pool by the status of its Rollout; 0 where it is unknown."""
        return self._bases[pool].at(position)

    def node_availability(self, uid: str, position: int) -> NodeAvailability:
        return self._nodes[uid].at(position)

    def driverless(self, uid: str, position: int) -> bool:
        """Report whether a node was, or may have been, unavailable without any revision."""
        node = self._timeline.nodes[uid].at(position)
        availability = self.node_availability(uid, position)
        return availability.doubtful or (availability.unavailable and not node.unavailable)

    def unavailable(self, pool: str, *, seen: int, position: int, without: str) -> int:
        """Count the unavailable nodes of a pool, except one, as a write at `position` could see it.

        The writer saw everything up to the position `seen`, and the answers to all of our own
        writes after it. Nodes deleted in between do not count: a deletion has no revision, so it is
        unknown whether the writer saw it. Nodes that got their driver in between do not count
        either: only their agents reported the driver, and no revision shows it.
        """

        def counts(uid: str, at_position: int) -> bool:
            return self.node_availability(uid, at_position) == NodeAvailability(pool, True)

        count = self.size(pool, seen).unavailable
        own_writes = self._own_writes[pool].between(seen, position)
        last_writes = {uid: written_at for written_at, uid in own_writes}
        last_writes.setdefault(without, seen)
        for uid, written_at in last_writes.items():
            count += (uid != without and counts(uid, written_at)) - counts(uid, seen)
        deleted = [uid for _, uid in self._deletions.between(seen, position)]
        for uid in deleted:
            count -= uid != without and counts(uid, last_writes.get(uid, seen))
        for uid in self._equipped(seen, position) - last_writes.keys() - set(deleted):
            count -= counts(uid, seen)
        return count

    def _equipped(self, seen: int, position: int) -> set[str]:
        """Return the nodes that lacked only a driver, and got one between two positions."""
        return {
            uid
            for uid in self._ever_driverless & self._timeline.nodes.keys()
            if not self._timeline.nodes[uid].at(seen).unavailable
            and self.node_availability(uid, seen).unavailable
            and not self.node_availability(uid, position).unavailable
        }

    def _replay(self) -> None:
        timeline = self._timeline
        for change in reversed(timeline.changes):
            if change.after.pool:
                self._recorded_pools[change.node.uid] = change.after.pool
        for uid, history in timeline.nodes.items():
            if (first := history.at(-1)).exists:
                self._membership.update_node(history, {})
                self._recorded_pools[uid] = first.pool or self._recorded_pools.get(uid, "")
                self._update_node(-1, history, first)
        self._apply_facts(-1, self._start_time)
        for item in in_journal_order(timeline):
            self._apply_facts(item.position - 1, timeline.time_of(item.position))
            match item:
                case NodeChange():
                    self._replay_node(item)
                case PolicyChange():
                    self._replay_policy(item)
                case RolloutWrite():
                    # A base above the number of nodes that ever existed is wrong.
                    base = min(item.base, len(self._members_ever[item.pool]))
                    self._bases[item.pool].append(item.position, base)

    def _apply_facts(self, position: int, until: float) -> None:
        """Apply the facts up to a time."""
        present: list[PoolFacts] = []
        while self._future_facts and self._future_facts[-1].since <= until:
            present.append(self._future_facts.pop())
        for since, facts_at_once in groupby(present, key=lambda item: item.since):
            for facts in facts_at_once:
                self._facts[facts.key] = facts
                self._limits[facts.key].append(facts)
            all_facts = self._facts.values()
            self._members_by_facts = {
                uid: facts.key for facts in all_facts for uid in facts.members or ()
            }
            self._driverless = _union(facts.driverless for facts in all_facts)
            self._doubtful = _union(facts.doubtful for facts in all_facts)
            self._update_all(min(position, self._timeline.position_at(since)))

    def _replay_policy(self, change: PolicyChange) -> None:
        for pool in self._membership.update_policy(change.kind, change.name, change.manifest):
            for key in {pool.key, pre_installed_key(pool.key)} - self._pools_with_facts:
                limits = PoolFacts(
                    key=key,
                    since=self._timeline.time_of(change.position),
                    max_unavailable=pool.upgrade.max_unavailable,
                    failure_threshold=pool.strategy.failure_threshold,
                    startup_taint=pool.strategy.startup_taint,
                )
                self._limits[key].append(limits)
        self._update_all(change.position)

    def _replay_node(self, change: NodeChange) -> None:
        history, after, position = change.node, change.after, change.position
        if after.pool:
            self._recorded_pools[history.uid] = after.pool
        if after.exists:
            others_changed = self._membership.update_node(history, change.labels)
        else:
            others_changed = self._membership.delete_node(history)
            self._deletions.append(position, history.uid)
        if others_changed:
            self._update_all(position)
        self._update_node(position, history, after)
        if change.by_scheduler:
            pool = self.node_availability(history.uid, position).pool
            self._own_writes[pool].append(position, history.uid)

    def _update_all(self, position: int) -> None:
        for history in self._timeline.nodes.values():
            self._update_node(position, history, history.at(position))

    def _update_node(self, position: int, history: NodeHistory, node: ReplayedNode) -> None:
        after = NO_POOL
        if node.exists:
            expected = _expects_driver(node)
            unavailable = node.unavailable or (expected and history.uid in self._driverless)
            doubtful = not unavailable and expected and history.uid in self._doubtful
            after = NodeAvailability(self._pool_of(history, node), unavailable, doubtful)
        series = self._nodes[history.uid]
        before = series.latest
        if after == before:
            return
        series.append(position, after)
        if before.pool:
            self._add(before.pool, position, nodes=-1, unavailable=-before.unavailable)
        if after.pool:
            self._add(after.pool, position, nodes=1, unavailable=after.unavailable)
            self._members_ever[after.pool].add(history.uid)

    def _add(self, pool: str, position: int, *, nodes: int, unavailable: int) -> None:
        size = self._sizes[pool].latest
        nodes += size.nodes
        updated = PoolSize(nodes, size.unavailable + unavailable, max(nodes, size.largest))
        self._sizes[pool].append(position, updated)

    def _pool_of(self, history: NodeHistory, node: ReplayedNode) -> str:
        if node.upgrade and node.pool:
            return node.pool
        if pool := self._members_by_facts.get(history.uid):
            return pool
        recorded = self._recorded_pools.get(history.uid, "")
        facts = self._facts.get(recorded)
        if facts is not None and facts.members is not None:
            return ""
        has_policies = self._membership.has_policies
        return self._membership.pool_of(history.name) if has_policies else recorded


def limit_of(facts: PoolFacts, nodes: int) -> int:
    """Return how many nodes of a pool of this size may be unavailable.

    100 % sets no limit: nodes that are leaving the pool count in it too.
    """
    maximum = facts.max_unavailable
    percent = scaled_value(maximum, 100)
    if percent == 0:
        return 0
    if isinstance(maximum, str) and "%" in maximum and percent >= 100:
        return sys.maxsize
    return max(1, scaled_value(maximum, nodes))


def in_journal_order(timeline: Timeline) -> Iterator[NodeChange | PolicyChange | RolloutWrite]:
    """Return all changes by position."""
    return merge(timeline.changes, timeline.object_changes, key=lambda item: item.position)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _expects_driver(node: ReplayedNode) -> bool:
    """Report whether a missing driver makes a node unavailable; a first bring-up has none yet."""
    if node.operation is Operation.BRING_UP:
        return False
    return bool(node.driver) or (node.record is not None and node.record.evidence is not None)
