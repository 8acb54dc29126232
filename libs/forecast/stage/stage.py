"""A stage: a small cluster in memory and virtual time, on which decisions are carried out.

Callers read `fleet` and `instant`, pass a decision to `carry_out`, and let time pass. A
`WorldModel` supplies durations and failures. The same stage with the same decisions always behaves
the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from libs.forecast.stage import (
    controllers,
    driver_agent,
    effects,
    gpu_health,
    mig,
    validator_agent,
    views,
)
from libs.forecast.stage.from_fleet import populate_from_fleet
from libs.forecast.stage.state import Latencies, StageState
from libs.forecast.world import WorldModel
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, RolloutView


class ViewUpdate(NamedTuple):
    """Changed views, as `Decider.update` takes them."""

    nodes: tuple[NodeView, ...]
    nodes_gone: tuple[str, ...]
    pools: tuple[PoolView, ...]


class Stage:
    """A cluster with its views."""

    def __init__(self, state: StageState) -> None:
        self._state = state
        self._nodes = dict[str, NodeView]()
        self._pools = dict[str, PoolView]()
        state.node_handlers = (controllers.on_node_changed,)
        state.machine_handlers = (
            driver_agent.on_machine_changed,
            validator_agent.on_machine_changed,
            mig.on_machine_changed,
            gpu_health.on_machine_changed,
        )

    @classmethod
    def from_fleet(cls, fleet: Fleet, *, world: WorldModel, now: float) -> "Stage":
        """Return the cluster of a snapshot, as far as the snapshot shows it."""
        state = StageState(world=world, start=now, latencies=Latencies())
        result = cls(state)
        populate_from_fleet(state, fleet)
        return result

    @property
    def state(self) -> StageState:
        return self._state

    # Views.

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

    def pop_view_update(self) -> ViewUpdate:
        """Return the views of everything changed since the last call."""
        state = self.state
        names = state.decided_nodes | state.dirty
        keys = state.decided_pools | state.dirty_pools
        for changed in (state.decided_nodes, state.decided_pools, state.dirty, state.dirty_pools):
            changed.clear()
        self._refresh_views()
        return ViewUpdate(
            nodes=tuple(self._nodes[name] for name in names if name in self._nodes),
            nodes_gone=tuple(name for name in names if name not in self._nodes),
            pools=tuple(self._pools[key] for key in keys),
        )

    def _refresh_views(self) -> None:
        state = self.state
        for name in state.stale_views:
            view = self._node_view(name)
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
            self._pools[key] = replace(state.pools[key], rollout=self._rollout_view(key))
        state.stale_pool_views.clear()

    def _node_view(self, name: str) -> NodeView | None:
        return views.node_view(self.state, name)

    def _rollout_view(self, key: str) -> RolloutView | None:
        return views.rollout_view(self.state, key)

    def instant(self) -> Instant:
        return views.instant(self.state)

    # Decisions and time.

    def carry_out(self, decision: Decision, no_longer_waiting: Iterable[str]) -> None:
        """Begin to carry out a decision; the waits of the nodes in `no_longer_waiting` end."""
        effects.carry_out(self.state, decision, no_longer_waiting)

    @property
    def next_at(self) -> float | None:
        """The time of the next timer; None: there is none."""
        return self.state.timers[0].at if self.state.timers else None

    def run_until(self, time: float) -> None:
        self.state.run_until(time)
