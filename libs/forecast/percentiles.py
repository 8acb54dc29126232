"""Percentiles over several plays.

A play in which an event never happens counts as infinitely late, so a percentile is never too
early; an infinite one is None.
"""

from collections.abc import Iterable
from math import ceil, inf

import msgspec

_MEDIAN, _LATE = 0.5, 0.95


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds from now; None: unknown."""

    p50: float | None = None
    p95: float | None = None


def percentiles_of(times: Iterable[float | None], plays: int) -> Percentiles:
    """Return percentiles over this number of plays; None and missing times count as infinite."""
    ordered = sorted(inf if time is None else time for time in times)
    if len(ordered) > plays or plays < 1:
        raise ValueError(f"{len(ordered)} times cannot come from {plays} plays: one each at most")
    ordered += [inf] * (plays - len(ordered))
    return Percentiles(_within(ordered, _MEDIAN), _within(ordered, _LATE))


def upper_median(amounts: Iterable[float]) -> float:
    """Return the median, of two the greater; 0 without amounts."""
    ordered = sorted(amounts)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _within(ordered: list[float], share: float) -> float | None:
    time = ordered[ceil(share * len(ordered)) - 1]
    return None if time == inf else time
