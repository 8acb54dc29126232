"""When a rollout ends at its pace so far, for `kubectl get rollouts`. No decision depends on it.

The pace is how long the nodes took that ended under this leader. A forecast of all nodes, with
budgets and pods, is the query `plan`.
"""

from collections import deque
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Final

from libs.contracts.rollout import RolloutPhase, RolloutStatus

_LAST: Final = 30
"""The ends of so many nodes tell the pace."""


class Pace:
    """How long the last nodes of each pool took, from the grant to the end."""

    def __init__(self) -> None:
        self._seconds: dict[str, deque[float]] = {}

    def written(
        self, pool: str, before: RolloutStatus | None, after: RolloutStatus, now: float
    ) -> None:
        """Learn from a written status which nodes were done since the one before."""
        if before is None or before.target != after.target:
            self._seconds.pop(pool, None)
            return
        if after.counts.done <= before.counts.done or after.counts.failed > before.counts.failed:
            return
        ended = [
            now - entry.since
            for uid, entry in before.in_flight.items()
            if uid not in after.in_flight and entry.target == after.target and not entry.validates
        ]
        self._seconds.setdefault(pool, deque(maxlen=_LAST)).extend(ended)

    def eta(self, pool: str, status: RolloutStatus, now: float) -> str:
        """Return the end, to the minute; empty where that is not known."""
        seconds = self._seconds.get(pool)
        goes_on = status.phase in (RolloutPhase.PROVING, RolloutPhase.PROVEN)
        if not seconds or not goes_on or status.because or not status.in_flight:
            return ""
        counts = status.counts
        left = counts.in_flight + counts.waiting
        elapsed = fmean(max(0.0, now - entry.since) for entry in status.in_flight.values())
        rounds = left / len(status.in_flight)
        usual = median(seconds)
        remaining = max(usual * rounds - min(elapsed, usual), 0.0)
        return datetime.fromtimestamp(now + remaining, UTC).strftime("%Y-%m-%dT%H:%MZ")
