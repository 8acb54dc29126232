"""The decision over a fleet (docs/states.md#deciding): steps of nodes, grants of pools, all waits.

A `Decider` decides incrementally: only what changed or came due is evaluated again. Nodes are
counted into their pools, each pool is evaluated, nodes are stepped, starts are granted, and the
changes are returned. The result always equals that of `decide` with what the
`Decider` remembers of Nodes that are gone.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from libs.rollout.decision import Decision, Wait, WriteRollout
from libs.rollout.limits import freshness, stale_source
from libs.rollout.node_index import NodeIndex
from libs.rollout.outcomes import NodePools, OutcomeTracker
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.pool_decider import PoolDecider
from libs.rollout.step import NodePhase
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

_VisibilityKey = tuple[int, bool, bool, float | None, tuple[tuple[float, float], ...], str, str]


Remembered = Mapping[str, frozenset[str]]
"""By pool: uids in flight of nodes that had not started, or had ended well, when last seen."""


class DecisionDelta(Decision, frozen=True, kw_only=True):
    """A decision with only those `waits` that changed (`WaitTracker`)."""

    no_longer_waiting: tuple[str, ...] = ()
    """Nodes that no longer wait and have no step."""


def decide(fleet: Fleet, now: Instant, remembered: Remembered | None = None) -> Decision:
    """Decide for one moment; without `remembered` as a new leader does."""
    decider = Decider(fleet)
    decider.remember(remembered or {})
    delta = decider.decide(now)
    waits = decider.waits
    return replace(delta, waits={name: waits[name] for name in sorted(waits)})


class Decider:
    def __init__(self, fleet: Fleet) -> None:
        self._index = NodeIndex()
        self._deciders: dict[str, PoolDecider] = {}
        self._node_pools: dict[str, NodePools] = {}
        self._outcomes = OutcomeTracker()
        self._dirty: set[str] = set()
        self._visibility_key: _VisibilityKey | None = None
        self.update(fleet.nodes.values(), (), fleet.pools.values())

    @property
    def waits(self) -> Mapping[str, Wait]:
        """Every node that is not where its policy wants it and has no step."""
        return self._outcomes.waits

    @property
    def remembered(self) -> Remembered:
        """What only this process knows of Nodes that may be gone; a new leader does not."""
        return {key: frozenset(each.harmless) for key, each in self._deciders.items()}

    def remember(self, harmless: Remembered) -> None:
        """Take over what another `Decider` remembers."""
        for key, decider in self._deciders.items():
            decider.remember(harmless.get(key, frozenset()))

    def is_skipped(self, name: str) -> bool:
        """Whether its pool counts the node as skipped."""
        pools = self._node_pools.get(name)
        return pools is not None and pools.phase is NodePhase.SKIPPED

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        return self._index.nodes

    @property
    def wake_at(self) -> float | None:
        """The time to decide again if nothing changes until then; None: never."""
        times = [decider.allocation.wake_at for decider in self._deciders.values()]
        times = [self._outcomes.wakes.next_at(), *times]
        return min((time for time in times if time is not None), default=None)

    def update(
        self,
        nodes: Iterable[NodeView] = (),
        nodes_gone: Iterable[str] = (),
        pools: Iterable[PoolView] = (),
        pools_gone: Iterable[str] = (),
    ) -> None:
        """Replace these nodes and pools; nothing is decided yet."""
        for key in pools_gone:
            self._drop_pool(key)
        for view in pools:
            self._update_pool(view)
        for name in nodes_gone:
            if uid := self._index.drop(name):
                self._drop_node(name, uid)
        for node in nodes:
            if uid := self._index.put(node):
                self._drop_node(node.name, uid)
            if node.last_wait is not None:
                self._outcomes.waits.remember(node.name, node.last_wait)
            self._dirty.add(node.name)

    def cancel_wake(self, name: str) -> None:
        """Ignore timers of this node until it changes."""
        self._outcomes.wakes.put(name, None)

    def _update_pool(self, view: PoolView) -> None:
        decider = self._deciders.get(view.key)
        if decider is None:
            decider = self._deciders[view.key] = PoolDecider(view)
            self._index.update_in_flight(view.key, into=decider.in_flight)
            self._dirty.update(self._index.nodes)
            return
        was_gone = decider.view.gone
        changed = decider.update_view(view)
        for uids in changed:
            self._dirty.update(self._index.names_of(uids))
        self._index.update_in_flight(view.key, out=changed.removed, into=changed.added)
        if decider.rules_changed:
            self._dirty |= decider.names if was_gone == view.gone else self._index.nodes.keys()

    def _drop_pool(self, key: str) -> None:
        decider = self._deciders.pop(key, None)
        if decider is not None:
            self._index.update_in_flight(key, out=decider.in_flight)
            self._dirty.update(self._index.nodes)

    def _drop_node(self, name: str, uid: str) -> None:
        """Forget a Node that is gone; its entry in flight ends."""
        membership = self._node_pools.pop(name, None)
        if membership is not None:
            for decider in membership.counting:
                decider.drop(uid)
            membership.unassign(name)
        self._outcomes.forget(name)
        self._dirty.discard(name)
        for key in self._index.in_flight.get(uid, ()):
            self._deciders[key].maybe_gone.add(uid)
            self._deciders[key].dirty = True

    def decide(self, now: Instant) -> DecisionDelta:
        """Decide now; return all steps, and the waits that changed."""
        rollouts = [decider.view.rollout for decider in self._deciders.values()]
        epochs = [rollout.status.epoch for rollout in rollouts if rollout is not None]
        if any(epoch > now.epoch for epoch in epochs):
            return DecisionDelta(deposed=True)
        is_recorded = all(epoch == now.epoch for epoch in epochs)
        leading = is_recorded and not now.visibility.no_rollouts
        self._refresh_visibility(now, leading=leading)
        outcomes, nodes = self._outcomes, self._index.nodes
        due, unsettled = outcomes.to_step(now)
        names = self._dirty.union(due)
        self._dirty = set()
        for name in names:
            self._count_in_pools(nodes[name], now)
        names |= self._evaluate(now, leading=leading) | unsettled
        stepped = sorted(names)
        for name in stepped:
            outcomes.update(nodes[name], self._node_pools[name], now)
        granted = self._grant(now)
        return self._delta(
            stepped if granted <= names else sorted(names | granted), now, leading=leading
        )

    def _refresh_visibility(self, now: Instant, *, leading: bool) -> None:
        """Re-evaluate every node when leader or inputs change."""
        visibility, is_stale = now.visibility, bool(stale_source(now))
        outages = (visibility.bus_down_since, visibility.bus_outages)
        problems = (visibility.no_rollouts, visibility.foreign_operator)
        key = (now.epoch, leading, is_stale, *outages, *problems)
        if key != self._visibility_key:
            self._visibility_key = key
            self._dirty.update(self._index.nodes)
            for decider in self._deciders.values():
                decider.dirty = True

    def _count_in_pools(self, node: NodeView, now: Instant) -> None:
        """Update the contributions of the node to all its pools."""
        name, uid = node.name, node.uid
        governing, keys = self._index.pools_of(node, self._deciders)
        decider = self._deciders.get(governing)
        if decider is not None and len(keys) == 1:
            counting = decider.as_single_pool
        else:
            counting = tuple([self._deciders[key] for key in keys])
        membership = self._node_pools.get(name)
        if membership is None:
            membership = self._node_pools[name] = NodePools()
            membership.assign(name, decider, counting)
        elif membership.governing is not decider or membership.counting != counting:
            for counted in membership.counting:
                if counted not in counting:
                    counted.drop(uid)
            membership.unassign(name)
            membership.assign(name, decider, counting)
        for counted in counting:
            entry = counted.in_flight.get(uid)
            counted.put(contribution_of(node, entry, counted.view.key, now.at))

    def _evaluate(self, now: Instant, *, leading: bool) -> set[str]:
        """Evaluate changed pools; return the nodes to step again."""
        names = set[str]()
        for decider in self._deciders.values():
            uids = decider.evaluate(self._index.names, now, leading=leading)
            names |= decider.names if uids is None else set(self._index.names_of(uids))
        return names

    def _grant(self, now: Instant) -> set[str]:
        """Grant starts in changed pools; return the nodes with a possibly changed wait."""
        fresh, waits, names = freshness(now), self._outcomes.waits, set[str]()
        for decider in self._deciders.values():
            if decider.dirty:
                names |= decider.allocate(self._index.nodes, waits.codes, fresh, now)
        overrides: dict[str, Wait] = {}
        for decider in self._deciders.values():
            overrides |= decider.allocation.waits
        return (names | waits.set_overrides(overrides)) & self._index.nodes.keys()

    def _probes(self) -> tuple[str, ...]:
        starts = (decider.allocation.probes for decider in self._deciders.values())
        releases = self._outcomes.probes.values()
        return tuple(sorted({source for probes in (*starts, *releases) for source in probes}))

    def _delta(self, changed: list[str], now: Instant, *, leading: bool) -> DecisionDelta:
        deciders = sorted(self._deciders.items())
        # Until our epoch is in every Rollout, nothing else is written.
        writes: list[WriteRollout | None] = [
            decider.write if leading else decider.epoch_write(now.epoch)
            for _, decider in deciders
            if not now.visibility.no_rollouts
        ]
        grants = [decider.allocation for _, decider in deciders]
        nodes = [self._index.nodes[name] for name in changed]
        checks = {name: step for grant in grants for name, step in grant.preflight_steps.items()}
        steps, waits, no_longer_waiting = self._outcomes.publish(nodes, checks, now.at)
        return DecisionDelta(
            steps=steps,
            waits=waits,
            no_longer_waiting=tuple(no_longer_waiting),
            rollouts=tuple(write for write in writes if write is not None),
            cancelled=tuple(sorted(self._outcomes.evicting)),
            probes=self._probes(),
            budgets={key: decider.budget_usage for key, decider in deciders},
            wake_at=self.wake_at,
        )
