"""Track how a target is proven in a play, and which node delays that."""

from math import inf

from libs.contracts.rollout import RolloutStatus
from libs.contracts.waits import WaitCode
from libs.forecast.play_result import ProofDelay, ProofResult
from libs.rollout.decision import Wait
from libs.rollout.views.pool import PoolView

OTHERS = frozenset({WaitCode.JOBS, WaitCode.EVICTION, WaitCode.PDB, WaitCode.OPERANDS})
"""Waits for jobs, pods or disruption budgets of others."""


class ProofTracker:
    def __init__(self, pool: PoolView) -> None:
        self._target = pool.target
        self._threshold = 0
        self._proven: float | None = None
        self._before = False
        """The target was already proven when the play began."""
        self._flying = frozenset[str]()
        self._waits: dict[str, tuple[float, Wait]] = {}
        self._longest: ProofDelay | None = None
        self.halted = ""
        """Why the target is halted; empty: it is not."""

    def observe_pool(self, pool: PoolView, at: float) -> None:
        rollout = pool.rollout
        if rollout is None:
            return
        if self._proven is None:
            self._fly(rollout.status, at)
        self._reckon(rollout.status, at)

    def _fly(self, status: RolloutStatus, at: float) -> None:
        flying = frozenset(
            one.node
            for one in status.in_flight.values()
            if one.target == self._target and not one.outside
        )
        for name in self._flying - flying:
            self._ended(name, at)
        self._flying = flying

    def _reckon(self, status: RolloutStatus, at: float) -> None:
        record = status.targets.get(self._target)
        if record is None:
            return
        self.halted = record.halted_because
        if record.proven and self._proven is None:
            self._proven = at
            self._before = not self._threshold
        self._threshold = record.threshold

    def observe_wait(self, name: str, wait: Wait | None, at: float) -> None:
        if self._proven is not None or name not in self._flying:
            return
        there = self._waits.get(name)
        if there is not None and wait is not None and there[1].code is wait.code:
            return
        self._ended(name, at)
        if wait is not None and wait.code in OTHERS:
            self._waits[name] = (at, wait)

    def result(self) -> ProofResult | None:
        """Return the result; None: the target needed no proof."""
        if self._before or not self._threshold:
            return None
        if self._proven is None:
            for name in sorted(self._waits):
                self._ended(name, inf)
        return ProofResult(threshold=self._threshold, proven_at=self._proven, delay=self._longest)

    def _ended(self, name: str, at: float) -> None:
        there = self._waits.pop(name, None)
        if there is None:
            return
        since, wait = there
        took = at - since
        if self._longest is None or took > self._longest.seconds:
            self._longest = ProofDelay(node=name, detail=wait.detail, seconds=took)
