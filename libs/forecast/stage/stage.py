"""A stage: a small cluster in memory and virtual time, on which decisions are carried out.

Callers read `fleet` and `instant`, pass a decision to `carry_out`, and let time pass. A
`WorldModel` answers how long things take. The same stage with the same decisions always behaves the
same.
"""

from collections.abc import Iterable
from typing import NamedTuple

from libs.contracts.records import AuditJournal
from libs.forecast.stage import audit_facts, driver_agent, effects, nodes, validator_agent, views
from libs.forecast.stage.from_fleet import populate_from_fleet
from libs.forecast.stage.from_specs import StageNodeSpec, populate
from libs.forecast.stage.latencies import Latencies
from libs.forecast.stage.state import StageState
from libs.forecast.stage.timers import Timer
from libs.forecast.world import WorldModel
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class ChangedNames(NamedTuple):
    """Names of changed nodes, including deleted ones, and keys of changed pools."""

    nodes: frozenset[str]
    pools: frozenset[str]


class ViewUpdate(NamedTuple):
    """Changed views, as `Decider.update` takes them."""

    nodes: tuple[NodeView, ...]
    nodes_gone: tuple[str, ...]
    pools: tuple[PoolView, ...]


class Stage:
    """A cluster; `copy` makes an independent one."""

    def __init__(
        self,
        pools: Iterable[PoolView] = (),
        nodes: Iterable[StageNodeSpec] = (),
        *,
        world: WorldModel,
        start: float = 0.0,
        latencies: Latencies = Latencies(),  # noqa: B008 - frozen
        journalled: bool = True,
    ) -> None:
        self.state = StageState(
            world=world, start=start, latencies=latencies, journalled=journalled
        )
        self._reset()
        populate(self.state, pools, nodes)

    @classmethod
    def from_fleet(cls, fleet: Fleet, *, world: WorldModel, now: float) -> "Stage":
        """Return the cluster that a snapshot shows, as far as it shows it."""
        result = cls(world=world, start=now, journalled=False)
        populate_from_fleet(result.state, fleet)
        return result

    def _reset(self) -> None:
        self._nodes = dict[str, NodeView]()
        self._pools = dict[str, PoolView]()
        self.state.node_handlers = (nodes.on_node_changed,)
        self.state.machine_handlers = (
            driver_agent.on_machine_changed,
            validator_agent.on_machine_changed,
        )
        if self.state.recorder is not None:
            self.state.node_handlers += (audit_facts.on_node_changed,)
            self.state.machine_handlers += (audit_facts.on_machine_changed,)

    # What is seen.

    @property
    def now(self) -> float:
        return self.state.now

    def fleet(self) -> Fleet:
        """Return all views; unchanged ones are the same objects as before."""
        self._refresh_views()
        return Fleet(pools=self._pools.copy(), nodes=self._nodes.copy())

    def node(self, name: str) -> NodeView | None:
        self._refresh_views()
        return self._nodes.get(name)

    def pool(self, key: str) -> PoolView:
        self._refresh_views()
        return self._pools[key]

    def pop_view_update(self) -> ViewUpdate:
        """Return the views of everything changed since the last call."""
        names = self.state.decided_nodes | self.state.dirty
        keys = self.state.decided_pools | self.state.dirty_pools
        self.pop_changed_names()
        self._refresh_views()
        return ViewUpdate(
            nodes=tuple(self._nodes[name] for name in names if name in self._nodes),
            nodes_gone=tuple(name for name in names if name not in self._nodes),
            pools=tuple(self._pools[key] for key in keys),
        )

    def _refresh_views(self) -> None:
        state = self.state
        for name in state.stale_views:
            view = views.node_view(state, name)
            if view is None:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = view
        for name in state.stale_memory_views - state.stale_views:
            if name in self._nodes:
                self._nodes[name] = views.with_memory(state, self._nodes[name])
        state.stale_views.clear()
        state.stale_memory_views.clear()
        for key in state.stale_pool_views:
            self._pools[key] = views.pool_view(state, key)
        state.stale_pool_views.clear()

    def instant(self, epoch: int | None = None) -> Instant:
        """Return the present moment for the leader of this epoch, by default the current one."""
        return views.instant(self.state, self.epoch if epoch is None else epoch)

    def pop_changed_names(self) -> ChangedNames:
        """Return what changed since the last call, except by decisions themselves."""
        state = self.state
        state.decided_nodes.clear()
        state.decided_pools.clear()
        result = ChangedNames(frozenset(state.dirty), frozenset(state.dirty_pools))
        state.dirty.clear()
        state.dirty_pools.clear()
        return result

    # What is done, and what happens then.

    def carry_out(
        self,
        decision: Decision,
        effect_faults: effects.EffectFaultSource | None = None,
        *,
        no_longer_waiting: Iterable[str] | None = None,
        leader: int | None = None,
    ) -> None:
        """Begin to carry out a decision.

        `no_longer_waiting` are the nodes whose wait ends, for a decision that contains changes
        only; by default all that it does not name. `leader` is the number of a leader other than
        the current one.
        """
        if leader is not None and leader != self.state.leader:
            effects.send(self.state, decision, leader, effect_faults)
        else:
            effects.carry_out(self.state, decision, effect_faults, no_longer_waiting)

    @property
    def next_at(self) -> float | None:
        """The time of the next timer; None: there is none."""
        return self.state.timers.next_at

    def advance(self) -> float:
        """Run all timers of the next moment that has any."""
        at = self.state.timers.next_at
        if at is not None:
            self.run_until(at)
        return self.state.now

    def run_until(self, time: float) -> None:
        """Advance to this time, running all timers on the way."""
        state = self.state
        while (at := state.timers.next_at) is not None and at <= time:
            due = state.timers.pop()
            state.now = max(state.now, at)
            due.callback(state, *due.values)
        state.now = max(state.now, time)

    # What can be judged, and told.

    def journal(self) -> AuditJournal:
        """Return the journal for an audit; empty for a stage without a recorder."""
        recorder = self.state.recorder
        return audit_facts.build_journal(recorder) if recorder is not None else AuditJournal()

    @property
    def violations(self) -> tuple[tuple[float, str, str], ...]:
        """Time, node and description of everything that must never happen on a machine."""
        return tuple(self.state.violations)

    @property
    def log_lines(self) -> tuple[tuple[float, str], ...]:
        recorder = self.state.recorder
        return tuple(recorder.log_lines) if recorder is not None else ()

    # For whoever tries every order of events.

    def pending(self) -> tuple[Timer, ...]:
        return self.state.timers.pending()

    def fire(self, due: Timer) -> None:
        """Run this timer now and all earlier ones later; time does not run backwards."""
        state = self.state
        state.timers.remove(due)
        state.now = max(state.now, due.at)
        due.callback(state, *due.values)

    def copy(self) -> "Stage":
        result = object.__new__(Stage)
        result.state = self.state.copy()
        result._nodes = self._nodes.copy()
        result._pools = self._pools.copy()
        return result

    # Who leads.

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def elect(self) -> int:
        """Elect another leader and return its epoch."""
        return effects.elect(self.state)
