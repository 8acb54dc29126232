"""Search for the smallest limits that complete a rollout in time.

A larger limit never makes a rollout slower, so the smallest sufficient one is found by bisection.
"""

from collections.abc import Callable
from math import ceil

from libs.forecast.remarks import format_duration
from libs.forecast.rollout_plan import RequiredLimits

MakespanOf = Callable[[int, int | None], float | None]
"""Returns the p95 makespan for a maxUnavailable and a maxParallelUpgrades (None: unchanged); None:
unknown.
"""


def find_required_limits(
    makespan_of: MakespanOf, *, nodes: int, seconds: float, least: int, parallel: int
) -> RequiredLimits:
    """Return the smallest sufficient `maxUnavailable`, not below `least`.

    `parallel` is the current `maxParallelUpgrades`.
    """
    if seconds <= 0:
        return RequiredLimits(max_unavailable=None, why="that time has passed")
    widest = makespan_of(nodes, None)
    if widest is not None and widest <= seconds:
        found = _smallest(lambda number: makespan_of(number, None), nodes, seconds, least)
        why = f"with {found} at a time it takes {format_duration(makespan_of(found, None))}"
        return RequiredLimits(max_unavailable=found, why=why)
    unlimited = makespan_of(nodes, 0) if parallel else widest
    if unlimited is not None and unlimited <= seconds:
        found = _smallest(lambda number: makespan_of(number, 0), nodes, seconds, least)
        why = (
            f"only with maxParallelUpgrades (now {parallel}) set to 0 or at least as much:"
            f" it then takes {format_duration(makespan_of(found, 0))}"
        )
        return RequiredLimits(max_unavailable=found, max_parallel=0, why=why)
    return RequiredLimits(max_unavailable=None, why=_why_never(unlimited))


def _why_never(unlimited: float | None) -> str:
    if unlimited is None:
        return "the end of the last node is unknown whatever the limits are"
    return f"even with all nodes at a time it takes {format_duration(unlimited)}"


def _smallest(
    makespan_of: Callable[[int], float | None], nodes: int, seconds: float, least: int
) -> int:
    """Return the smallest sufficient number of 0 to `nodes`, of which the last is sufficient."""

    def is_enough(number: int) -> bool:
        makespan = makespan_of(number)
        return makespan is not None and makespan <= seconds

    low, high, step = least - 1, nodes, 1
    while (probe := low + step) < high:
        if is_enough(probe):
            high = probe
            break
        low, step = probe, ceil(step * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
