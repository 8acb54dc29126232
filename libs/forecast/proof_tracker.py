"""Track how a target is proven in a play, and which node delays that."""

from math import inf

from libs.contracts.node import WaitCode
from libs.contracts.rollout import RolloutStatus
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
        self._proven_before = False
        """The target was already proven when the play began."""
        self._in_flight = frozenset[str]()
        self._waits: dict[str, tuple[float, Wait]] = {}
        self._longest: ProofDelay | None = None
        self.halted = ""
        """Why the target is halted; empty: it is not."""

    def observe_pool(self, pool: PoolView, at: float) -> None:
        rollout = pool.rollout
        if rollout is None:
            return
        if self._proven is None:
            self._observe_flight(rollout.status, at)
        self._observe_target(rollout.status, at)

    def _observe_flight(self, status: RolloutStatus, at: float) -> None:
        in_flight = frozenset(
            node.node
            for node in status.in_flight.values()
            if node.target == self._target and not node.outside
        )
        for name in self._in_flight - in_flight:
            self._end_wait(name, at)
        self._in_flight = in_flight

    def _observe_target(self, status: RolloutStatus, at: float) -> None:
        record = status.targets.get(self._target)
        if record is None:
            return
        self.halted = record.halted_because
        if record.proven and self._proven is None:
            self._proven = at
            self._proven_before = not self._threshold
        self._threshold = record.threshold

    def observe_wait(self, name: str, wait: Wait | None, at: float) -> None:
        if self._proven is not None or name not in self._in_flight:
            return
        current = self._waits.get(name)
        if current is not None and wait is not None and current[1].code is wait.code:
            return
        self._end_wait(name, at)
        if wait is not None and wait.code in OTHERS:
            self._waits[name] = (at, wait)

    def result(self) -> ProofResult | None:
        """Return the result; None: the target needed no proof."""
        if self._proven_before or not self._threshold:
            return None
        if self._proven is None:
            for name in sorted(self._waits):
                self._end_wait(name, inf)
        return ProofResult(threshold=self._threshold, proven_at=self._proven, delay=self._longest)

    def _end_wait(self, name: str, at: float) -> None:
        current = self._waits.pop(name, None)
        if current is None:
            return
        since, wait = current
        seconds = at - since
        if self._longest is None or seconds > self._longest.seconds:
            self._longest = ProofDelay(node=name, detail=wait.detail, seconds=seconds)
