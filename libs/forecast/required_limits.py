"""What the limits would have to be to be through by a certain time: tried out, from below.

More places do not make a rollout slower, so between a number that will do and one that will not the
smallest is found by halves. Must not know how a number is tried.
"""

from collections.abc import Callable
from math import ceil

from libs.forecast.rollout_plan import RequiredLimits
from libs.forecast.text import format_duration

MakespanOf = Callable[[int, int | None], float | None]
"""Seconds within which a pool is through in 19 of 20 plays, with so many unavailable and so many in
parallel, which may be as it is; None: nobody can say."""


def find_required_limits(
    makespan_of: MakespanOf, *, nodes: int, seconds: float, least: int, parallel: int
) -> RequiredLimits:
    """The smallest `maxUnavailable`; `parallel` is what `maxParallelUpgrades` is, `least` a number
    below which it is no use to try."""
    if seconds <= 0:
        return RequiredLimits(max_unavailable=None, why="that time is over")
    widest = makespan_of(nodes, None)
    if widest is not None and widest <= seconds:
        found = _smallest(lambda number: makespan_of(number, None), nodes, seconds, least)
        why = f"with {found} at a time it takes {format_duration(makespan_of(found, None))}"
        return RequiredLimits(max_unavailable=found, why=why)
    freed = makespan_of(nodes, 0) if parallel else widest
    if freed is not None and freed <= seconds:
        found = _smallest(lambda number: makespan_of(number, 0), nodes, seconds, least)
        why = (
            f"only if maxParallelUpgrades, which is {parallel}, is 0 or at least as much:"
            f" then it takes {format_duration(makespan_of(found, 0))}"
        )
        return RequiredLimits(max_unavailable=found, max_parallel=0, why=why)
    return RequiredLimits(max_unavailable=None, why=_never(freed))


def _never(freed: float | None) -> str:
    if freed is None:
        return "whatever the limits are, it cannot be said when the last node is in place"
    return f"no number would do: with all nodes at a time it takes {format_duration(freed)}"


def _smallest(tried: Callable[[int], float | None], nodes: int, seconds: float, least: int) -> int:
    """Of 0 to `nodes`, of which the last is known to do."""

    def does(number: int) -> bool:
        took = tried(number)
        return took is not None and took <= seconds

    low, high, step = least - 1, nodes, 1
    while (probe := low + step) < high:
        if does(probe):
            high = probe
            break
        low, step = probe, ceil(step * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return high
