"""The sets of a pool's nodes, updated incrementally.

Removing a contribution undoes adding it exactly, so the sets always equal a full recount.
"""

from collections import defaultdict

from libs.contracts.rollout import InFlight, RolloutStatus, Vanished
from libs.rollout.pool.contribution import EntryResult, NodeContribution


class PoolTally:
    def __init__(self) -> None:
        self.contributions: dict[str, NodeContribution] = {}
        """By uid."""
        self._failed: dict[str, frozenset[str]] = {}
        self.present = 0
        self.base_count = 0
        self.managed_count = 0
        self.unavailable: dict[str, str] = {}
        """By name: why the node is unavailable."""
        self.parallel: dict[str, str] = {}
        """By name: in flight and counted against `maxParallelUpgrades`, with the target."""
        self.in_flight: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that count as in flight for it."""
        self.holders: defaultdict[str, set[tuple[float, str]]] = defaultdict(set)
        """The same as start times and names."""
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
        """By target: uids that validated it and still have an entry in flight."""

        self.vanished: defaultdict[str, dict[str, Vanished]] = defaultdict(dict)
        """By target, then uid: nodes that are gone and may have started on it."""

    def has_failed(self, uid: str, target: str) -> bool:
        """Whether the node failed on this target, stored in the Rollout or not."""
        return uid in self._failed.get(target, ()) or uid in self.failed.get(target, ())

    def load_failures(self, status: RolloutStatus) -> None:
        """Load the stored failures, before the contributions that depend on them."""
        self._failed = {
            target: frozenset(record.failed) for target, record in status.targets.items()
        }

    def put(self, contribution: NodeContribution) -> None:
        uid, name = contribution.uid, contribution.name
        if uid in self.contributions:
            self.drop(uid)
        self.contributions[uid] = contribution
        self.present += contribution.present
        self.base_count += contribution.counts_for_base
        self.managed_count += contribution.was_managed
        if contribution.unavailable:
            self.unavailable[name] = contribution.unavailable
        if contribution.failed_on and uid not in self._failed.get(contribution.failed_on, ()):
            self.failed[contribution.failed_on].add(uid)
        if (gone := contribution.vanished) is not None:
            self.vanished[gone.target][uid] = Vanished(node=name, since=gone.since)
        if contribution.ending is not None:
            self.endings[uid] = contribution.ending
            if contribution.proved_on:
                self.validated[contribution.proved_on].add(uid)
        if contribution.entry is not None:
            self._put_entry(contribution, contribution.entry)

    def _put_entry(self, contribution: NodeContribution, entry: InFlight) -> None:
        uid = contribution.uid
        for target in contribution.counted_targets:
            self.in_flight[target].add(uid)
            self.holders[target].add((entry.since, contribution.name))
        if not entry.outside:
            self.parallel[contribution.name] = entry.target or "no other driver"
        if contribution.is_recovery:
            self.recovering.add(uid)
        if contribution.entry_differs:
            self.differing[uid] = entry
        if not contribution.leased:
            self.pending[uid] = contribution
        elif not contribution.started:
            self.unstarted[entry.target][uid] = contribution

    def drop(self, uid: str) -> None:
        previous = self.contributions.pop(uid)
        self.present -= previous.present
        self.base_count -= previous.counts_for_base
        self.managed_count -= previous.was_managed
        if previous.unavailable:
            del self.unavailable[previous.name]
        self.endings.pop(uid, None)
        self.failed[previous.failed_on].discard(uid)
        self.validated[previous.proved_on].discard(uid)
        if previous.vanished is not None:
            del self.vanished[previous.vanished.target][uid]
        if previous.entry is not None:
            self._drop_entry(previous, previous.entry)

    def _drop_entry(self, previous: NodeContribution, entry: InFlight) -> None:
        uid = previous.uid
        for target in previous.counted_targets:
            self.in_flight[target].discard(uid)
            self.holders[target].remove((entry.since, previous.name))
        if not entry.outside:
            del self.parallel[previous.name]
        self.recovering.discard(uid)
        self.differing.pop(uid, None)
        self.pending.pop(uid, None)
        if previous.leased and not previous.started:
            del self.unstarted[entry.target][uid]
