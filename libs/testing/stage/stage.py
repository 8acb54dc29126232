"""A stage that is set up from specs, can be copied, and runs its timers in any order."""

from collections.abc import Iterable
from heapq import heapify

from libs.contracts.records import AuditJournal
from libs.forecast.stage import effects
from libs.forecast.stage.from_fleet import add_pool
from libs.forecast.stage.stage import Stage
from libs.forecast.stage.state import Latencies, Timer
from libs.forecast.world import WorldModel
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, RolloutView
from libs.testing.stage import effect_faults, faults
from libs.testing.stage.effect_faults import EffectFaultSource
from libs.testing.stage.specs import StageNodeSpec, add_node
from libs.testing.stage.state import SimulatedState, probe_answered


class SimulatedStage(Stage):
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
        state = SimulatedState(world=world, start=start, latencies=latencies, journalled=journalled)
        super().__init__(state)
        self._simulated = state
        state.node_handlers = (faults.on_node_created_or_deleted, *state.node_handlers)
        for pool in pools:
            add_pool(state, pool)
            if state.recorder is not None and (rollout := state.pools[pool.key].rollout):
                state.recorder.rollout_found(pool.key, rollout)
        for spec in nodes:
            add_node(state, spec, found=True)

    @property
    def state(self) -> SimulatedState:
        return self._simulated

    def copy(self) -> "SimulatedStage":
        """Return an independent stage."""
        result = object.__new__(SimulatedStage)
        result._state = result._simulated = self.state.copy()
        result._nodes = self._nodes.copy()
        result._pools = self._pools.copy()
        return result

    # Views.

    def pool(self, key: str) -> PoolView:
        return self.fleet().pools[key]

    def _node_view(self, name: str) -> NodeView | None:
        return self.state.node_view(name)

    def _rollout_view(self, key: str) -> RolloutView | None:
        return self.state.rollout_view(key)

    def instant(self, epoch: int | None = None) -> Instant:
        """Return the present moment for the leader of this epoch, by default the current one."""
        return self.state.instant(self.epoch if epoch is None else epoch)

    # Decisions and leaders.

    def carry_out(
        self,
        decision: Decision,
        no_longer_waiting: Iterable[str] | None = None,
        *,
        faults_of: EffectFaultSource | None = None,
        leader: int | None = None,
    ) -> None:
        """Begin to carry out a decision.

        Without `no_longer_waiting` the decision is a whole one: every node that it does not name
        no longer waits. `leader` is the number of a leader other than the current one.
        """
        state = self.state
        if leader is None or leader == state.leader:
            if no_longer_waiting is None:
                named = decision.waits.keys() | decision.steps.keys()
                no_longer_waiting = state.memory.keys() - named
            effects.remember(state, decision, no_longer_waiting)
            for source in decision.probes:
                state.call_after(state.latencies.kubelet, probe_answered, source)
        effect_faults.send(state, decision, state.leader if leader is None else leader, faults_of)

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def elect(self) -> int:
        """Elect another leader and return its epoch."""
        return faults.elect(self.state)

    # Time.

    def advance(self) -> None:
        """Run all timers of the next moment that has any."""
        if self.next_at is not None:
            self.run_until(self.next_at)

    def pending(self) -> list[Timer]:
        return sorted(self.state.timers, key=lambda due: (due.at, due.entry))

    def fire(self, due: Timer) -> None:
        """Run this timer now and all earlier ones later; time does not run backwards."""
        state = self.state
        state.timers.remove(due)
        heapify(state.timers)
        state.now = max(state.now, due.at)
        due.callback(state, *due.values)

    # Results.

    def journal(self) -> AuditJournal:
        """Return the journal for an audit; empty for a stage without a recorder."""
        journal = self.state.recorder
        return journal.as_audit_journal() if journal is not None else AuditJournal()

    @property
    def violations(self) -> tuple[tuple[float, str, str], ...]:
        """Time, node and description of everything that must never happen on a machine."""
        return tuple(self.state.violations)

    @property
    def log_lines(self) -> tuple[tuple[float, str], ...]:
        journal = self.state.recorder
        return tuple(journal.log_lines) if journal is not None else ()
