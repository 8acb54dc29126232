"""What several plays of the same thing come to: within what time in half of them, in 19 of 20.

A play in which it never happened counts as one in which it took for ever: so a time that is said is
never too early, and one that nobody can know is None. Must not know what was played.
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
    """Of so many plays; None and the plays that are missing took for ever."""
    ordered = sorted(inf if time is None else time for time in times)
    if len(ordered) > plays or plays < 1:
        raise ValueError(f"{len(ordered)} times cannot come from {plays} plays: one each at most")
    ordered += [inf] * (plays - len(ordered))
    return Percentiles(_within(ordered, _MEDIAN), _within(ordered, _LATE))


def upper_median(amounts: Iterable[float]) -> float:
    """The one in the middle, of two the greater; 0 if there are none."""
    ordered = sorted(amounts)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _within(ordered: list[float], share: float) -> float | None:
    """The least time within which at least this share of them was over."""
    time = ordered[ceil(share * len(ordered)) - 1]
    return None if time == inf else time
