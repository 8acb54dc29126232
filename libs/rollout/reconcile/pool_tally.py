"""The sets of a pool's nodes, updated incrementally.

Removing a contribution undoes adding it exactly, so the sets always equal a full recount.
"""

from collections import defaultdict

from libs.contracts.rollout import InFlight, RolloutStatus
from libs.rollout.order import NodeReasons, SortedList
from libs.rollout.reconcile.contribution import EntryResult, NodeContribution


class PoolTally:
    def __init__(self) -> None:
        self._bearings: dict[str, NodeContribution] = {}
        self._failed: dict[str, frozenset[str]] = {}
        self.present = 0
        self.base_count = 0
        self.managed_count = 0
        self.unavailable = NodeReasons()
        """By name: why the node is unavailable."""
        self.parallel = NodeReasons()
        """In flight and counted against `maxParallelUpgrades`, with the target."""
        self.in_flight: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that count as in flight for it."""
        self.holders: defaultdict[str, SortedList[tuple[float, str]]] = defaultdict(SortedList)
        """The same by start time and name."""
        self.recovering: set[str] = set()
        self.endings: dict[str, EntryResult] = {}
        self.differing: dict[str, InFlight] = {}
        self.pending: dict[str, NodeContribution] = {}
        """By uid: granted and not begun."""
        self.unstarted: defaultdict[str, dict[str, NodeContribution]] = defaultdict(dict)
        """By target, then uid: leased, with nothing irreversible done."""
        self.failed: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that failed on it and are not in the Rollout yet."""
        self.validated: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that validated it and whose entry is not taken out yet."""

    def contribution(self, uid: str) -> NodeContribution:
        return self._bearings[uid]

    def has_failed(self, uid: str, target: str) -> bool:
        """Whether the node failed on this target, stored in the Rollout or not."""
        return uid in self._failed.get(target, ()) or uid in self.failed.get(target, ())

    def load_failures(self, status: RolloutStatus) -> None:
        """Load the stored failures, before the contributions that depend on them."""
        self._failed = {
            target: frozenset(record.failed) for target, record in status.targets.items()
        }

    def put(self, bearing: NodeContribution) -> None:
        uid, name = bearing.uid, bearing.name
        if uid in self._bearings:
            self.drop(uid)
        self._bearings[uid] = bearing
        self.present += bearing.present
        self.base_count += bearing.counts_for_base
        self.managed_count += bearing.was_managed
        if bearing.unavailable:
            self.unavailable.put(name, bearing.unavailable)
        if bearing.failed_on and uid not in self._failed.get(bearing.failed_on, ()):
            self.failed[bearing.failed_on].add(uid)
        if bearing.ending is not None:
            self.endings[uid] = bearing.ending
            if bearing.proved_on:
                self.validated[bearing.proved_on].add(uid)
        if bearing.entry is not None:
            self._put_entry(bearing, bearing.entry)

    def _put_entry(self, bearing: NodeContribution, entry: InFlight) -> None:
        uid = bearing.uid
        for target in bearing.counted_targets:
            self.in_flight[target].add(uid)
            self.holders[target].add((entry.since, bearing.name))
        if not entry.outside:
            self.parallel.put(bearing.name, entry.target or "no driver")
        if bearing.is_recovery:
            self.recovering.add(uid)
        if bearing.entry_differs:
            self.differing[uid] = entry
        if not bearing.leased:
            self.pending[uid] = bearing
        elif not bearing.started:
            self.unstarted[entry.target][uid] = bearing

    def drop(self, uid: str) -> None:
        had = self._bearings.pop(uid)
        self.present -= had.present
        self.base_count -= had.counts_for_base
        self.managed_count -= had.was_managed
        if had.unavailable:
            self.unavailable.drop(had.name)
        self.endings.pop(uid, None)
        self.failed[had.failed_on].discard(uid)
        self.validated[had.proved_on].discard(uid)
        if had.entry is not None:
            self._drop_entry(had, had.entry)

    def _drop_entry(self, had: NodeContribution, entry: InFlight) -> None:
        uid = had.uid
        for target in had.counted_targets:
            self.in_flight[target].discard(uid)
            self.holders[target].remove((entry.since, had.name))
        if not entry.outside:
            self.parallel.drop(had.name)
        self.recovering.discard(uid)
        self.differing.pop(uid, None)
        self.pending.pop(uid, None)
        if had.leased and not had.started:
            del self.unstarted[entry.target][uid]
