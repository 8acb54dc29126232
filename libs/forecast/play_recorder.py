"""Record the result of a play from its changed views and decisions."""

from collections.abc import Iterable, Mapping

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.forecast.capacity_tracker import CapacityTracker
from libs.forecast.play_result import NodeResult, PlayResult
from libs.forecast.proof_tracker import ProofTracker
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import EvictPods, Step, Wait
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

IDLE_SECONDS = 300.0
"""Seconds without a node in flight after which none will start: preflights repeat each minute."""
GIVE_UP_SECONDS = 7 * 24 * 3600.0
"""Seconds without progress after which the play ends."""

_BY_TIME = frozenset({WaitCode.BACK_OFF, WaitCode.DRIVER_RESTARTING})
"""Waits that end by themselves although no node is in flight."""


class PlayRecorder:
    def __init__(self, fleet: Fleet, pool: str, at: float) -> None:
        self._began = at
        self._pool = pool
        self._courses: dict[str, NodeResult] = {}
        self._open: set[str] = set()
        """Nodes that are not done yet."""
        self._flying: set[str] = set()
        self._quiet_since = 0.0
        """When the last node left flight, or a timed wait was last observed."""
        self._told = 0.0
        """When a node last started for the first time, or finished."""
        self._gpus = {name: node.gpus for name, node in fleet.nodes.items()}
        self._service = CapacityTracker()
        self._proving = ProofTracker(fleet.pools[pool])
        self._proving.observe_pool(fleet.pools[pool], 0.0)
        for node in fleet.nodes.values():
            self._service.observe(node, 0.0, first=True)
            self._flight(node, 0.0)
        self._service.update(0.0)

    # What is shown to it.

    def observe(self, now: float, nodes: Iterable[NodeView], pools: Iterable[PoolView]) -> None:
        at = now - self._began
        for node in nodes:
            self._service.observe(node, at)
            self._flight(node, at)
        self._service.update(at)
        for pool in pools:
            if pool.key == self._pool:
                self._proving.observe_pool(pool, at)

    def observe_decision(
        self,
        now: float,
        news: DecisionDelta,
        waits: Mapping[str, Wait],
        looked_at: Iterable[NodeView],
    ) -> None:
        """Record a decision; it considered `looked_at`, `waits` are those of all nodes."""
        at = now - self._began
        for name, step in news.steps.items():
            self._moves(name)
            for act in step.actions:
                if isinstance(act, EvictPods):
                    self._evicts(name, (pod.uid for pod in act.pods))
            self._proving.observe_wait(name, step.wait, at)
        for name, wait in news.waits.items():
            self._moves(name)
            self._proving.observe_wait(name, wait, at)
        for node in looked_at:
            at_work = node.write_pending or node.name in news.steps or node.name in waits
            if not at_work and node.name in self._open:
                self._rests(node, at)

    def fast_forwarded(self, now: float, name: str, leaving: Iterable[str]) -> None:
        """Record that the node starts and evicts these pods; it is not observed again before its
        end.
        """
        at = now - self._began
        self._takes_off(name, at)
        self._evicts(name, leaving)
        self._service.node_lost(name, self._gpus[name], at)
        self._service.update(at)

    # When it is over.

    def is_over(self, following: float, waits: Mapping[str, Wait]) -> bool:
        """Return whether the play can end, given the time of its next event."""
        at = following - self._began
        if not self._open or at - self._told > GIVE_UP_SECONDS:
            return True
        if self._flying or at - self._quiet_since < IDLE_SECONDS:
            return False
        patient = any(name in waits and waits[name].code in _BY_TIME for name in self._open)
        if patient:
            self._quiet_since = at
        return not patient

    def result(self, waits: Mapping[str, Wait], steps: Mapping[str, Step]) -> PlayResult:
        for name in self._open:
            step = steps.get(name)
            self._courses[name].wait = waits.get(name) or (step.wait if step else None)
        lasted = max((each.over_at or 0.0 for each in self._courses.values()), default=0.0)
        return PlayResult(
            nodes=self._courses,
            duration=lasted,
            loss=self._service.loss,
            gpu_seconds=self._service.gpu_seconds(lasted),
            proof=self._proving.result(),
            halted_because=self._proving.halted,
        )

    # One node.

    def _moves(self, name: str) -> None:
        if name not in self._courses:
            self._courses[name] = NodeResult()
            self._open.add(name)

    def _rests(self, node: NodeView, at: float) -> None:
        course = self._courses[node.name]
        self._open.discard(node.name)
        course.end, course.failed = at, None
        self._told = at

    def _evicts(self, name: str, uids: Iterable[str]) -> None:
        course = self._courses[name]
        course.evicted = course.evicted.union(uids)

    def _flight(self, node: NodeView, at: float) -> None:
        name = node.name
        if upgrade_lease(node) is not None:
            self._takes_off(name, at)
            return
        if name in self._flying:
            self._flying.discard(name)
            self._quiet_since = at
        self._fails(node, at)

    def _takes_off(self, name: str, at: float) -> None:
        if name in self._flying:
            return
        self._flying.add(name)
        self._moves(name)
        course = self._courses[name]
        if course.start is None:
            course.start = self._told = at

    def _fails(self, node: NodeView, at: float) -> None:
        course = self._courses.get(node.name)
        if course is None or course.end is not None:
            return
        failed = node.state == UpgradeState.UPGRADE_FAILED
        if failed and course.failed is None and course.start is not None:
            course.failed = self._told = at
        elif not failed:
            course.failed = None
