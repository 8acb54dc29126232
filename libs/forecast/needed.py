"""What the limits would have to be to be through by a certain time: tried out, from below.

More places do not make a rollout slower, so between a number that will do and one that will not the
smallest is found by halves. Must not know how a number is tried.
"""

from collections.abc import Callable
from math import ceil

from libs.forecast.foreseen import Needed
from libs.forecast.words import lasting

Tried = Callable[[int, int | None], float | None]
"""Seconds within which a pool is through in 19 of 20 plays, with so many unavailable and so many in
parallel, which may be as it is; None: nobody can say."""


def needed(tried: Tried, *, nodes: int, seconds: float, least: int, parallel: int) -> Needed:
    """The smallest `maxUnavailable`; `parallel` is what `maxParallelUpgrades` is, `least` a number
    below which it is no use to try."""
    if seconds <= 0:
        return Needed(max_unavailable=None, why="that time is over")
    widest = tried(nodes, None)
    if widest is not None and widest <= seconds:
        found = _smallest(lambda number: tried(number, None), nodes, seconds, least)
        why = f"with {found} at a time it takes {lasting(tried(found, None))}"
        return Needed(max_unavailable=found, why=why)
    freed = tried(nodes, 0) if parallel else widest
    if freed is not None and freed <= seconds:
        found = _smallest(lambda number: tried(number, 0), nodes, seconds, least)
        why = (
            f"only if maxParallelUpgrades, which is {parallel}, is 0 or at least as much:"
            f" then it takes {lasting(tried(found, 0))}"
        )
        return Needed(max_unavailable=found, max_parallel=0, why=why)
    return Needed(max_unavailable=None, why=_never(freed))


def _never(freed: float | None) -> str:
    if freed is None:
        return "whatever the limits are, it cannot be said when the last node is in place"
    return f"no number would do: with all nodes at a time it takes {lasting(freed)}"


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
