"""Incremental decisions over a fleet: only what changed or came due is evaluated again.

Nodes are counted into their pools, each pool is evaluated, nodes are stepped, starts are granted,
and the changes are returned. The result always equals that of `decide`.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from libs.rollout.decide.node_index import NodeIndex
from libs.rollout.decide.outcome_tracker import NodePools, OutcomeTracker
from libs.rollout.decide.pool_decider import PoolDecider
from libs.rollout.decision import Decision, Step, Wait, WriteRollout
from libs.rollout.freshness import freshness
from libs.rollout.limits import stale_source
from libs.rollout.reconcile.contribution import contribution_of
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

_VisibilityKey = tuple[int, bool, bool, float | None, tuple[tuple[float, float], ...], str]


class DecisionDelta(Decision, frozen=True, kw_only=True):
    """A decision whose `waits` are only those with another code than before."""

    no_longer_waiting: tuple[str, ...] = ()
    """Nodes that neither wait any more nor have a step."""


class Decider:
    def __init__(self, fleet: Fleet) -> None:
        self._roster = NodeIndex()
        self._books: dict[str, PoolDecider] = {}
        self._rows: dict[str, NodePools] = {}
        self._placing = OutcomeTracker()
        self._dirty: set[str] = set()
        self._seen: _VisibilityKey | None = None
        self.update(fleet.nodes.values(), (), fleet.pools.values())

    @property
    def waits(self) -> Mapping[str, Wait]:
        """Every node that is not where its policy wants it and has no step."""
        return self._placing.waits

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        return self._roster.nodes

    @property
    def wake_at(self) -> float | None:
        """When to decide again though nothing changes; None: never."""
        times = [book.grant.wake_at for book in self._books.values()]
        ahead = [at for at in (self._placing.wakes.next_at(), *times) if at is not None]
        return min(ahead) if ahead else None

    # What changed.

    def update(
        self,
        nodes: Iterable[NodeView] = (),
        nodes_gone: Iterable[str] = (),
        pools: Iterable[PoolView] = (),
        pools_gone: Iterable[str] = (),
    ) -> None:
        """Replace these nodes and pools; nothing is decided yet."""
        for key in pools_gone:
            self._close(key)
        for view in pools:
            self._renew(view)
        for name in nodes_gone:
            if uid := self._roster.drop(name):
                self._leave(name, uid)
        for node in nodes:
            if uid := self._roster.put(node):
                self._leave(node.name, uid)
            if node.last_wait is not None:
                self._placing.waits.remember(node.name, node.last_wait)
            self._dirty.add(node.name)

    def cancel_wake(self, name: str) -> None:
        """Ignore timers of this node until it changes."""
        self._placing.wakes.put(name, None)

    def _renew(self, view: PoolView) -> None:
        book = self._books.get(view.key)
        if book is None:
            book = self._books[view.key] = PoolDecider(view)
            self._roster.update_in_flight(view.key, into=book.in_flight)
            self._dirty.update(self._roster.nodes)
            return
        was_gone = book.view.gone
        changed = book.update_view(view)
        for uids in changed:
            self._dirty.update(self._roster.names_of(uids))
        self._roster.update_in_flight(view.key, out=changed.removed, into=changed.added)
        if book.rules_changed:
            self._dirty |= book.names if was_gone == view.gone else self._roster.nodes.keys()

    def _close(self, key: str) -> None:
        book = self._books.pop(key, None)
        if book is not None:
            self._roster.update_in_flight(key, out=book.in_flight)
            self._dirty.update(self._roster.nodes)

    def _leave(self, name: str, uid: str) -> None:
        """Forget a Node that is gone; its entry in flight ends."""
        row = self._rows.pop(name, None)
        if row is not None:
            for book in row.counting:
                book.drop(uid)
            row.unassign(name)
        self._placing.forget(name)
        self._dirty.discard(name)
        for key in self._roster.pools_in_flight(uid):
            self._books[key].maybe_gone.add(uid)
            self._books[key].dirty = True

    # What follows.

    def decide(self, now: Instant) -> DecisionDelta:
        """Decide now; return all steps, and the waits that changed."""
        epochs = [book.stored.epoch for book in self._books.values() if book.stored is not None]
        if any(epoch > now.epoch for epoch in epochs):
            return DecisionDelta(deposed=True)
        leading = all(epoch == now.epoch for epoch in epochs)
        self._refresh_visibility(now, leading=leading)
        placing, nodes, rows = self._placing, self._roster.nodes, self._rows
        names = self._dirty.union(placing.wakes.pop_due(now.at))
        self._dirty = set()
        for name in names:
            self._count_in_pools(nodes[name], now)
        names |= self._reckon(now, leading=leading)
        names |= placing.to_revisit(now)
        ordered = sorted(names)
        for name in ordered:
            placing.update(nodes[name], rows[name], now)
        granted = self._grant(now)
        if not granted <= names:
            ordered = sorted(names | granted)
        return self._delta(ordered, now, leading=leading)

    def _refresh_visibility(self, now: Instant, *, leading: bool) -> None:
        """Re-evaluate every node when leader or inputs change."""
        sight, is_stale = now.visibility, bool(stale_source(now))
        away = (sight.bus_down_since, sight.bus_outages)
        seen = (now.epoch, leading, is_stale, *away, sight.foreign_operator)
        if seen != self._seen:
            self._seen = seen
            self._dirty.update(self._roster.nodes)
            for book in self._books.values():
                book.dirty = True

    def _count_in_pools(self, node: NodeView, now: Instant) -> None:
        """Update the contributions of the node to all its pools."""
        name, uid = node.name, node.uid
        stepper, keys = self._roster.pools_of(node, self._books)
        book = self._books.get(stepper)
        homes = book.as_only_pool if book is not None and len(keys) == 1 else self._of(keys)
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = NodePools()
            row.assign(name, book, homes)
        elif row.governing is not book or row.counting != homes:
            for home in row.counting:
                if home not in homes:
                    home.drop(uid)
            row.unassign(name)
            row.assign(name, book, homes)
        for home in homes:
            entry = home.in_flight.get(uid)
            home.put(contribution_of(node, entry, home.view.key, now.at))

    def _of(self, keys: Iterable[str]) -> tuple[PoolDecider, ...]:
        return tuple([self._books[key] for key in keys])

    def _reckon(self, now: Instant, *, leading: bool) -> set[str]:
        """Evaluate changed pools; return the nodes to step again."""
        names = set[str]()
        for book in self._books.values():
            if book.maybe_gone:
                book.find_strays(self._roster.names)
            book.dirty |= book.has_pending
            if book.dirty:
                uids = book.evaluate(now, leading=leading)
                names |= book.names if uids is None else set(self._roster.names_of(uids))
        return names

    def _grant(self, now: Instant) -> set[str]:
        """Grant starts in changed pools; return the nodes whose wait may have changed."""
        fresh, waits, names = freshness(now), self._placing.waits, set[str]()
        for book in self._books.values():
            if not book.dirty:
                continue
            names |= book.grant.preflight_steps.keys()
            grant = book.allocate(self._roster.nodes, waits.codes, fresh, now)
            for queue in grant.changed_queues:
                names.update(queue.ranking.names())
            names |= grant.preflight_steps.keys()
            book.dirty = False
        over: dict[str, Wait] = {}
        for book in self._books.values():
            over |= book.grant.waits
        return (names | waits.set_overrides(over)) & self._roster.nodes.keys()

    # What is told.

    def _delta(self, touched: Iterable[str], now: Instant, *, leading: bool) -> DecisionDelta:
        nodes, placing = self._roster.nodes, self._placing
        all_waits, books = placing.waits, sorted(self._books.items())
        asks: dict[str, Step] = {}
        for _, book in books:
            asks |= book.grant.preflight_steps
        steps: dict[str, Step] = {}
        waits: dict[str, Wait] = {}
        rested: list[str] = []
        for name in touched:
            step = placing.steps.get(name) or asks.get(name)
            if nodes[name].write_pending:
                all_waits.hide(name)
            elif step is not None:
                wait = all_waits.wait_beside_step(name, step.wait, now.at)
                steps[name] = step if wait is step.wait else replace(step, wait=wait)
            elif (wait := all_waits.update(name, now.at)) is not None:
                waits[name] = wait
            elif name not in all_waits and all_waits.clear(name):
                rested.append(name)
        return DecisionDelta(
            steps=steps,
            waits=waits,
            no_longer_waiting=tuple(rested),
            rollouts=self._rollouts(now, leading=leading),
            cancelled=tuple(sorted(placing.evicting)),
            probes=tuple(sorted({name for _, book in books for name in book.grant.probes})),
            budgets={key: book.account for key, book in books},
            wake_at=self.wake_at,
        )

    def _rollouts(self, now: Instant, *, leading: bool) -> tuple[WriteRollout, ...]:
        """Until our epoch is in every Rollout, nothing else is written."""
        books = [book for _, book in sorted(self._books.items())]
        writes = [book.write if leading else book.epoch_write(now.epoch) for book in books]
        return tuple(write for write in writes if write is not None)
