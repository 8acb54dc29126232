"""Ages in a table: `5m30s`, `3h5m`, `2d4h`, `45d`. Truncated, and coarser the longer they are."""

from typing import Any

from libs.kube.views import parse_time

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY

_SPANS = (
    # below this, the larger unit, and the smaller unit beside it (0: none)
    (2 * MINUTE, 1, 0),
    (10 * MINUTE, MINUTE, 1),
    (3 * HOUR, MINUTE, 0),
    (8 * HOUR, HOUR, MINUTE),
    (2 * DAY, HOUR, 0),
    (8 * DAY, DAY, HOUR),
    (2 * YEAR, DAY, 0),
    (8 * YEAR, YEAR, DAY),
)
_LETTERS = {1: "s", MINUTE: "m", HOUR: "h", DAY: "d", YEAR: "y"}


def duration(seconds: float) -> str:
    """Format a duration; one second in the future counts as now, because clocks differ."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    for limit, unit, smaller in _SPANS:
        if whole < limit:
            return _in_units(whole, unit, smaller)
    return _in_units(whole, YEAR, 0)


def _in_units(seconds: int, unit: int, smaller: int) -> str:
    words = f"{seconds // unit}{_LETTERS[unit]}"
    rest = seconds % unit // smaller if smaller else 0
    return f"{words}{rest}{_LETTERS[smaller]}" if rest else words


def since(timestamp: Any, now: float) -> str:
    """Format the time since a timestamp; `<unknown>` without one."""
    return duration(now - parse_time(timestamp)) if timestamp else "<unknown>"
