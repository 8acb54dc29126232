"""How long a plan says that a rollout takes, the same wherever that is shown. Pure.

The times of a plan count from when it was asked for. A rollout takes from the start of its first
node to the end of its last one, whenever that start is.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from libs.rollout.durations import format_duration

_MINUTE: Final = 60.0


class PlanTime(NamedTuple):
    """Seconds from the first start on; None: unknown."""

    p50: float | None
    p95: float | None

    def __str__(self) -> str:
        late = "not known" if self.p95 is None else brief(self.p95)
        return "no end" if self.p50 is None else f"{brief(self.p50)} (p50), {late} (p95)"


def plan_time(p50: float | None, p95: float | None, starts: Iterable[float | None]) -> PlanTime:
    """Return how long a rollout takes, of a plan's ends of the last node and starts of nodes."""
    first = first_start(starts)
    p50, p95 = (None if end is None else max(0.0, end - first) for end in (p50, p95))
    return PlanTime(p50, p95)


def first_start(starts: Iterable[float | None]) -> float:
    """Return when the first node starts; 0 where none does."""
    return min((start for start in starts if start is not None), default=0.0)


def brief(seconds: float) -> str:
    """Return a duration as precise as a plan is: from ten minutes on without seconds."""
    is_short = seconds < 10 * _MINUTE
    return format_duration(seconds if is_short else round(seconds / _MINUTE) * _MINUTE)
