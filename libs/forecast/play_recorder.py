"""Record the result of a play from its changed views and decisions."""

from collections.abc import Iterable, Mapping
from functools import cache, partial

from libs.contracts.node import UpgradeState
from libs.contracts.waits import TIMED_WAITS
from libs.forecast.planned_waits import PlayEnd, planned_wait, versions_of
from libs.forecast.play_result import CapacityTracker, NodeResult, PlayResult, ProofTracker
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import EvictPods, Step, Wait
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

IDLE_SECONDS = 300.0
"""Seconds without a node in flight after which none will start: preflights repeat each minute."""
GIVE_UP_SECONDS = 7 * 24 * 3600.0
"""Seconds without progress after which the play ends."""


class PlayRecorder:
    def __init__(self, fleet: Fleet, pool: str, started_at: float) -> None:
        self._started_at = started_at
        self._pool = pool
        self._results: dict[str, NodeResult] = {}
        self._open: set[str] = set()
        """Nodes that are not done yet."""
        self._in_flight: set[str] = set()
        self._idle_since = 0.0
        """When the last node left flight, or a timed wait was last observed."""
        self._progress_at = 0.0
        """When a node last started for the first time, or finished."""
        self._gpus = {name: node.gpus for name, node in fleet.nodes.items()}
        self._evicting = {
            name: [eviction.uid for eviction in node.evictions]
            for name, node in fleet.nodes.items()
            if node.evictions
        }
        self._capacity = CapacityTracker()
        self._proof = ProofTracker(fleet.pools[pool])
        self._proof.observe_pool(fleet.pools[pool], 0.0)
        for node in fleet.nodes.values():
            self._capacity.observe(node, 0.0, first=True)
            self._observe_flight(node, 0.0)
        self._capacity.update(0.0)
        self._view = fleet.pools[pool]
        self._versions = versions_of(fleet)

    # Observations.

    def observe(self, now: float, nodes: Iterable[NodeView], pools: Iterable[PoolView]) -> None:
        elapsed = now - self._started_at
        for node in nodes:
            self._capacity.observe(node, elapsed)
            self._observe_flight(node, elapsed)
        self._capacity.update(elapsed)
        for pool in pools:
            if pool.key == self._pool:
                self._proof.observe_pool(pool, elapsed)

    def observe_decision(
        self,
        now: float,
        decision: DecisionDelta,
        waits: Mapping[str, Wait],
        considered: Iterable[NodeView],
    ) -> None:
        """Record a decision about the `considered` nodes; `waits` are those of all nodes."""
        elapsed = now - self._started_at
        for name, step in decision.steps.items():
            self._open_node(name)
            for action in step.actions:
                if isinstance(action, EvictPods):
                    self._add_evicted(name, (pod.uid for pod in action.pods))
            self._proof.observe_wait(name, step.wait, elapsed)
        for name, wait in decision.waits.items():
            self._open_node(name)
            self._proof.observe_wait(name, wait, elapsed)
        for node in considered:
            if node.name in waits:
                self._open_node(node.name)
            is_active = node.write_pending or node.name in decision.steps or node.name in waits
            if not is_active and node.name in self._open:
                self._finish_node(node, elapsed)

    def fast_forwarded(self, now: float, name: str, leaving: Iterable[str]) -> None:
        """Record that the node starts and evicts these pods; it is not observed again before its
        end.
        """
        elapsed = now - self._started_at
        self._start_node(name, elapsed)
        self._add_evicted(name, leaving)
        self._capacity.node_lost(name, self._gpus[name], elapsed, "in an upgrade")
        self._capacity.update(elapsed)

    # The end of the play.

    def is_over(self, next_time: float, waits: Mapping[str, Wait]) -> bool:
        """Return whether the play can end, given the time of its next event."""
        elapsed = next_time - self._started_at
        if not self._open or elapsed - self._progress_at > GIVE_UP_SECONDS:
            return True
        if self._in_flight or elapsed - self._idle_since < IDLE_SECONDS:
            return False
        timed = any(name in waits and waits[name].code in TIMED_WAITS for name in self._open)
        if timed:
            self._idle_since = elapsed
        return not timed

    def result(self, waits: Mapping[str, Wait], steps: Mapping[str, Step]) -> PlayResult:
        in_words = cache(partial(planned_wait, end=self._end()))
        for name in self._open:
            step = steps.get(name)
            wait = waits.get(name) or (step.wait if step else None)
            self._results[name].wait = None if wait is None else in_words(wait)
        duration = max((node.over_at or 0.0 for node in self._results.values()), default=0.0)
        return PlayResult(
            nodes=self._results,
            duration=duration,
            loss=self._capacity.loss,
            losses=tuple(self._capacity.losses),
            gpu_seconds=self._capacity.gpu_seconds(duration),
            proof=self._proof.result(),
            halted_because=self._proof.halted,
        )

    def _end(self) -> PlayEnd:
        return PlayEnd(
            target=self._view.target,
            versions=self._versions,
            record=self._proof.record,
            in_flight=tuple(sorted(self._proof.in_flight)),
            max_unavailable=self._view.upgrade.max_unavailable,
            limit=self._proof.limit,
            unavailable=self._capacity.reasons,
            were_unavailable=self._capacity.from_beginning,
        )

    # One node.

    def _open_node(self, name: str) -> None:
        if name not in self._results:
            self._results[name] = NodeResult()
            self._open.add(name)
            self._add_evicted(name, self._evicting.get(name, ()))

    def _finish_node(self, node: NodeView, elapsed: float) -> None:
        result = self._results[node.name]
        self._open.discard(node.name)
        result.end, result.failed = elapsed, None
        result.drained = self._capacity.last_outages.get(node.name)
        if result.drained is not None:
            pulled = max((pod.pulled or 0.0 for pod in node.driver_pods), default=0.0)
            result.pulling = min(pulled, result.drained)
        self._progress_at = elapsed

    def _add_evicted(self, name: str, uids: Iterable[str]) -> None:
        result = self._results[name]
        result.evicted = result.evicted.union(uids)

    def _observe_flight(self, node: NodeView, elapsed: float) -> None:
        name = node.name
        if node.upgrade_lease is not None:
            self._start_node(name, elapsed)
            return
        if name in self._in_flight:
            self._in_flight.discard(name)
            self._idle_since = elapsed
        self._observe_failure(node, elapsed)

    def _start_node(self, name: str, elapsed: float) -> None:
        if name in self._in_flight:
            return
        self._in_flight.add(name)
        self._open_node(name)
        result = self._results[name]
        if result.start is None:
            result.start = self._progress_at = elapsed

    def _observe_failure(self, node: NodeView, elapsed: float) -> None:
        result = self._results.get(node.name)
        if result is None or result.end is not None:
            return
        failed = node.state == UpgradeState.UPGRADE_FAILED
        if failed and result.failed is None and result.start is not None:
            result.failed = self._progress_at = elapsed
        elif not failed:
            result.failed = None
