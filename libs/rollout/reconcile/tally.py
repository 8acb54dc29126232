"""The sets that a pool's nodes come to, kept as nodes come, change and go.

Adding a bearing and taking it away again leaves everything as it was: so what was kept is what
would be counted anew. Must not know what follows from the sets.
"""

from collections import defaultdict

from libs.contracts.rollout import InFlight, RolloutStatus
from libs.rollout.order import Names, Sorted
from libs.rollout.reconcile.bearing import Bearing, Ending


class Tally:
    """Of one pool."""

    def __init__(self) -> None:
        self._bearings: dict[str, Bearing] = {}
        self._failed: dict[str, frozenset[str]] = {}
        self.present = 0
        self.entered = 0
        self.ours = 0
        self.unavailable = Names()
        """By name, why."""
        self.parallel = Names()
        """In flight, and counted against `maxParallelUpgrades`; with what it moves to."""
        self.flying: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that count as in flight for it."""
        self.holders: defaultdict[str, Sorted[tuple[float, str]]] = defaultdict(Sorted)
        """The same by since when and name."""
        self.healing: set[str] = set()
        self.endings: dict[str, Ending] = {}
        self.differing: dict[str, InFlight] = {}
        self.pending: dict[str, Bearing] = {}
        """Granted and not begun, by uid."""
        self.unstarted: defaultdict[str, dict[str, Bearing]] = defaultdict(dict)
        """By target, then by uid: leased, and nothing was done that cannot be taken back."""
        self.failed: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that failed on it, and of whom the Rollout does not say so yet."""
        self.proved: defaultdict[str, set[str]] = defaultdict(set)
        """By target: uids that validated it, and whose place has not been taken out yet."""

    def bearing(self, uid: str) -> Bearing:
        """What was last put in for this node."""
        return self._bearings[uid]

    def has_failed(self, uid: str, target: str) -> bool:
        """Whether it failed on this target, as the Rollout says or is to say."""
        return uid in self._failed.get(target, ()) or uid in self.failed.get(target, ())

    def recorded(self, status: RolloutStatus) -> None:
        """What the Rollout says of failures; before the bearings that it changes."""
        self._failed = {
            target: frozenset(record.failed) for target, record in status.targets.items()
        }

    def put(self, bearing: Bearing) -> None:
        """The node comes to this now."""
        uid, name = bearing.uid, bearing.name
        if uid in self._bearings:
            self.drop(uid)
        self._bearings[uid] = bearing
        self.present += bearing.present
        self.entered += bearing.entered
        self.ours += bearing.ours
        if bearing.unavailable:
            self.unavailable.put(name, bearing.unavailable)
        if bearing.failed_on and uid not in self._failed.get(bearing.failed_on, ()):
            self.failed[bearing.failed_on].add(uid)
        if bearing.ending is not None:
            self.endings[uid] = bearing.ending
            if bearing.proved_on:
                self.proved[bearing.proved_on].add(uid)
        if bearing.entry is not None:
            self._put_entry(bearing, bearing.entry)

    def _put_entry(self, bearing: Bearing, entry: InFlight) -> None:
        uid = bearing.uid
        for target in bearing.counted:
            self.flying[target].add(uid)
            self.holders[target].add((entry.since, bearing.name))
        if not entry.outside:
            self.parallel.put(bearing.name, entry.target or "no driver")
        if bearing.heals:
            self.healing.add(uid)
        if bearing.differs:
            self.differing[uid] = entry
        if not bearing.leased:
            self.pending[uid] = bearing
        elif not bearing.started:
            self.unstarted[entry.target][uid] = bearing

    def drop(self, uid: str) -> None:
        """The node comes to nothing here any more."""
        had = self._bearings.pop(uid)
        self.present -= had.present
        self.entered -= had.entered
        self.ours -= had.ours
        if had.unavailable:
            self.unavailable.drop(had.name)
        self.endings.pop(uid, None)
        self.failed[had.failed_on].discard(uid)
        self.proved[had.proved_on].discard(uid)
        if had.entry is not None:
            self._drop_entry(had, had.entry)

    def _drop_entry(self, had: Bearing, entry: InFlight) -> None:
        uid = had.uid
        for target in had.counted:
            self.flying[target].discard(uid)
            self.holders[target].remove((entry.since, had.name))
        if not entry.outside:
            self.parallel.drop(had.name)
        self.healing.discard(uid)
        self.differing.pop(uid, None)
        self.pending.pop(uid, None)
        if had.leased and not had.started:
            del self.unstarted[entry.target][uid]
