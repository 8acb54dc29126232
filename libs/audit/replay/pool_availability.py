"""How many nodes of each pool there were and were unavailable, at any place of the journal.

From the revisions alone, but for what `PoolFacts` say. A node under a lease is of the pool that its
record names, else of that which the facts or the policies give it.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Final

import msgspec

from libs.audit.replay.changes import NodeChange, PolicyChange, RolloutWrite
from libs.audit.replay.membership import PoolMembership
from libs.audit.replay.nodes import NodeHistory, ReplayedNode
from libs.audit.replay.timeline import Timeline
from libs.contracts.node import Operation
from libs.contracts.records import PoolFacts
from libs.policy.int_or_string import scaled_value
from libs.policy.shapes import IntOrString


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a pool from a moment on."""

    since: float
    max_unavailable: IntOrString
    failure_threshold: IntOrString
    base: int | None = None

    def limit(self, nodes: int) -> int:
        """So many of these nodes may be unavailable."""
        if scaled_value(self.max_unavailable, 100) == 0:
            return 0
        return max(1, scaled_value(self.max_unavailable, nodes))


class NodeAvailability(msgspec.Struct, frozen=True):
    """Whose a node is, and whether it is unavailable."""

    pool: str = ""
    unavailable: bool = False
    doubtful: bool = False
    """It may have been known to be unavailable, though no revision shows it."""


NO_POOL: Final = NodeAvailability()


class _Log:
    """Of one pool: how many nodes, and how many of them unavailable, from each place on."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._counts: list[tuple[int, int]] = []
        self._most: list[int] = []

    def add(self, place: int, *, nodes: int, unavailable: int) -> None:
        had = self._counts[-1] if self._counts else (0, 0)
        count = had[0] + nodes, had[1] + unavailable
        most = max(count[0], self._most[-1] if self._most else 0)
        if self._places and self._places[-1] == place:
            self._counts[-1], self._most[-1] = count, most
        else:
            self._places.append(place)
            self._counts.append(count)
            self._most.append(most)

    def at(self, place: int) -> tuple[int, int]:
        found = bisect_right(self._places, place)
        return self._counts[found - 1] if found else (0, 0)

    def most(self, place: int) -> int:
        found = bisect_right(self._places, place)
        return self._most[found - 1] if found else 0


class PoolAvailability:
    """Made in one pass over the timeline."""

    def __init__(self, timeline: Timeline, facts: Sequence[PoolFacts]) -> None:
        self._timeline = timeline
        self._given = {one.key for one in facts}
        self._waiting = sorted(facts, key=lambda one: one.since)[::-1]
        self._facts: dict[str, PoolFacts] = {}
        self._driverless: frozenset[str] = frozenset()
        self._doubtful: frozenset[str] = frozenset()
        self._lacking = frozenset[str]().union(*(one.driverless for one in facts))
        """Who was ever without a driver."""
        self._members = PoolMembership()
        self._named: dict[str, str] = {}
        self._terms: dict[str, list[PoolLimits]] = defaultdict(list)
        self._bases: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._logs: dict[str, _Log] = defaultdict(_Log)
        self._standings: dict[str, tuple[list[int], list[NodeAvailability]]] = {}
        self._given_members: dict[str, str] = {}
        self._ever: dict[str, set[str]] = defaultdict(set)
        self._written: dict[str, tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
        self._deletions: tuple[list[int], list[str]] = ([], [])
        self._replay()

    # Asking.

    def limits(self, pool: str, *, since: float, until: float) -> list[PoolLimits]:
        """All that held within this time; none where nobody knows any."""
        known = self._terms.get(pool, [])
        last = bisect_right(known, until, key=lambda one: one.since)
        first = bisect_right(known, since, key=lambda one: one.since)
        return known[max(first - 1, 0) : last]

    def size(self, pool: str, place: int) -> int:
        """How many nodes a pool has."""
        return self._logs[pool].at(place)[0]

    def largest(self, pool: str, place: int) -> int:
        """The most nodes that it had up to a place."""
        return self._logs[pool].most(place)

    def base(self, pool: str, place: int) -> int | None:
        """As the status of its Rollout says."""
        places, bases = self._bases[pool]
        found = bisect_right(places, place)
        return bases[found - 1] or None if found else None

    def node_availability(self, uid: str, place: int) -> NodeAvailability:
        """Of a node."""
        places, standings = self._standings.get(uid, ([], []))
        found = bisect_right(places, place)
        return standings[found - 1] if found else NO_POOL

    def driverless(self, uid: str, place: int) -> bool:
        """Whether a node was, or may have been, unavailable for no reason that a revision shows."""
        known, standing = self._timeline.nodes[uid].at(place), self.node_availability(uid, place)
        return standing.doubtful or (standing.unavailable and not known.unavailable)

    def unavailable(self, pool: str, *, seen: int, place: int, without: str) -> int:
        """Nodes of a pool, `apart` from one, as somebody knew it who saw `seen` and all of our own
        writes after that up to `place`: what the API server answered to those, he saw too.

        Of a deletion no revision is told, so nobody can say whether he saw it: who was deleted
        meanwhile does not count. Nor does who lacked a driver and got one: that an agent tells.
        """
        _, count = self._logs[pool].at(seen)
        places, uids = self._written[pool]
        later = range(bisect_right(places, seen), bisect_right(places, place))
        latest = {uids[index]: places[index] for index in later}
        latest.setdefault(without, seen)
        away = NodeAvailability(pool, True)
        for uid, last in latest.items():
            count -= self.node_availability(uid, seen) == away
            count += uid != without and self.node_availability(uid, last) == away
        deleted = self._deleted(seen, place)
        for uid in deleted:
            if uid != without:
                count -= self.node_availability(uid, latest.get(uid, seen)) == away
        for uid in self._equipped(seen, place) - latest.keys() - set(deleted):
            count -= self.node_availability(uid, seen) == away
        return count

    def _equipped(self, seen: int, place: int) -> set[str]:
        """Nodes that lacked nothing but a driver, and were available after that."""
        return {
            uid
            for uid in self._lacking & self._timeline.nodes.keys()
            if not self._timeline.nodes[uid].at(seen).unavailable
            and self.node_availability(uid, seen).unavailable
            and not self.node_availability(uid, place).unavailable
        }

    def _deleted(self, seen: int, place: int) -> list[str]:
        """Nodes that went between the two."""
        places, uids = self._deletions
        return uids[bisect_right(places, seen) : bisect_right(places, place)]

    # Replaying.

    def _replay(self) -> None:
        timeline = self._timeline
        for change in reversed(timeline.changes):
            if change.after.pool:
                self._named[change.node.uid] = change.after.pool
        for life in timeline.nodes.values():
            if (first := life.at(-1)).exists:
                self._members.node_relabelled(life, {})
                self._named[life.uid] = first.pool or self._named.get(life.uid, "")
                self._stand(-1, life, first)
        self._apply_facts(-1, timeline.time_of(0) if timeline.revisions else 0.0)
        for item in in_journal_order(timeline):
            self._apply_facts(item.position - 1, timeline.time_of(item.position))
            match item:
                case NodeChange():
                    self._change(item)
                case PolicyChange():
                    self._edition(item)
                case RolloutWrite():
                    # Nobody can have counted more nodes than ever were there.
                    places, bases = self._bases[item.pool]
                    places.append(item.position)
                    bases.append(min(item.base, len(self._ever[item.pool])))

    def _apply_facts(self, place: int, until: float) -> None:
        """What came to hold up to a moment."""
        while self._waiting and self._waiting[-1].since <= until:
            since = self._waiting[-1].since
            self._learn(since)
            self._stand_all(min(place, self._timeline.position_at(since)))

    def _learn(self, since: float) -> None:
        """All that came to hold at a moment."""
        while self._waiting and self._waiting[-1].since == since:
            facts = self._waiting.pop()
            self._facts[facts.key] = facts
            self._terms[facts.key].append(
                PoolLimits(
                    since=facts.since,
                    max_unavailable=facts.max_unavailable,
                    failure_threshold=facts.failure_threshold,
                    base=facts.base,
                )
            )
        self._given_members = {
            uid: key for key, facts in self._facts.items() for uid in facts.members or ()
        }
        self._driverless = frozenset[str]().union(*(one.driverless for one in self._facts.values()))
        self._doubtful = frozenset[str]().union(*(one.doubtful for one in self._facts.values()))

    def _edition(self, edition: PolicyChange) -> None:
        for pool in self._members.update_policy(edition.kind, edition.name, edition.whole):
            if pool.key not in self._given:
                self._terms[pool.key].append(
                    PoolLimits(
                        since=edition.time,
                        max_unavailable=pool.upgrade.max_unavailable,
                        failure_threshold=pool.strategy.failure_threshold,
                    )
                )
        self._stand_all(edition.position)

    def _change(self, change: NodeChange) -> None:
        life, after = change.node, change.after
        if after.pool:
            self._named[life.uid] = after.pool
        if after.exists:
            others = self._members.node_relabelled(life, change.labels)
        else:
            others = self._members.node_deleted(life)
            places, uids = self._deletions
            places.append(change.position)
            uids.append(life.uid)
        if others:
            self._stand_all(change.position)
        self._stand(change.position, life, after)
        if change.ours:
            places, uids = self._written[self.node_availability(life.uid, change.position).pool]
            places.append(change.position)
            uids.append(life.uid)

    def _stand_all(self, place: int) -> None:
        for life in self._timeline.nodes.values():
            self._stand(place, life, life.at(place))

    def _stand(self, place: int, life: NodeHistory, facts: ReplayedNode) -> None:
        now = NO_POOL
        if facts.exists:
            expected = _should_have(facts)
            away = facts.unavailable or (expected and life.uid in self._driverless)
            doubtful = not away and expected and life.uid in self._doubtful
            now = NodeAvailability(self._pool_of(life, facts), away, doubtful)
        places, standings = self._standings.setdefault(life.uid, ([], []))
        was = standings[-1] if standings else NO_POOL
        if now == was:
            return
        places.append(place)
        standings.append(now)
        if was.pool:
            self._logs[was.pool].add(place, nodes=-1, unavailable=-was.unavailable)
        if now.pool:
            self._logs[now.pool].add(place, nodes=1, unavailable=now.unavailable)
            self._ever[now.pool].add(life.uid)

    def _pool_of(self, life: NodeHistory, facts: ReplayedNode) -> str:
        if facts.upgrade and facts.pool:
            return facts.pool
        if given := self._given_members.get(life.uid):
            return given
        named = self._named.get(life.uid, "")
        if named in self._given:
            told = self._facts.get(named)
            return named if told is None or told.members is None else ""
        return self._members.pool_of(life.name) if self._members.has_policies else named


def in_journal_order(timeline: Timeline) -> Iterator[NodeChange | PolicyChange | RolloutWrite]:
    """Changes of Nodes and editions of what people and we write beside them, as they came."""
    return merge(timeline.changes, timeline.object_changes, key=lambda item: item.position)


def _should_have(facts: ReplayedNode) -> bool:
    """Whether a driver is missed where none is loaded; in a first bring-up none is, yet."""
    if facts.operation is Operation.BRING_UP:
        return False
    return bool(facts.driver) or (facts.record is not None and facts.record.evidence is not None)
