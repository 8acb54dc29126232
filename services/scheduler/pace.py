"""When a rollout ends at its pace so far, for `kubectl get rollouts`. No decision depends on it.

The pace is how long the nodes took that ended under this leader. A forecast of all nodes, with
budgets and pods, is the query `plan`.
"""

from collections import deque
from datetime import UTC, datetime
from math import ceil
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
        elif ended := _ended(before, after, now):
            self._seconds.setdefault(pool, deque(maxlen=_LAST)).extend(ended)

    def eta(self, pool: str, before: RolloutStatus | None, after: RolloutStatus, now: float) -> str:
        """Return the end, rounded up to a minute; empty where it is not known.

        `after` is about to be written: the nodes that are done since `before` count, so that the
        first of a fleet tells when those end that start with the same write.
        """
        if before is None or before.target != after.target:
            return ""
        seconds = [*self._seconds.get(pool, ()), *_ended(before, after, now)]
        goes_on = after.phase in (RolloutPhase.PROVING, RolloutPhase.PROVEN)
        if not seconds or not goes_on or after.because or not after.in_flight:
            return ""
        counts = after.counts
        left = counts.in_flight + counts.waiting
        elapsed = fmean(max(0.0, now - entry.since) for entry in after.in_flight.values())
        rounds = left / len(after.in_flight)
        usual = median(seconds)
        remaining = max(usual * rounds - min(elapsed, usual), 0.0)
        minute = ceil((now + remaining) / 60)
        return datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _ended(before: RolloutStatus, after: RolloutStatus, now: float) -> list[float]:
    """Return how long the nodes took that are done since; none if one failed meanwhile."""
    if after.counts.done <= before.counts.done or after.counts.failed > before.counts.failed:
        return []
    return [
        now - entry.since
        for uid, entry in before.in_flight.items()
        if uid not in after.in_flight and entry.target == after.target and not entry.validates
    ]
