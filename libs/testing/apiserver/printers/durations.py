"""Times as people read them in a table: `5m30s`, `3h5m`, `2d4h`, `45d`, `3y20d`.

The fewer figures the longer it is, cut and never rounded, as the real server cuts.
"""

from typing import Any

from libs.kube.times import parse_time

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY

_SPANS = (
    # below this, in the larger unit, and the smaller one beside it (0: none)
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
    """A second that has not come yet is none: clocks differ."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    for below, unit, rest in _SPANS:
        if whole < below:
            return _in_units(whole, unit, rest)
    return _in_units(whole, YEAR, 0)


def _in_units(seconds: int, unit: int, rest: int) -> str:
    words = f"{seconds // unit}{_LETTERS[unit]}"
    small = seconds % unit // rest if rest else 0
    return f"{words}{small}{_LETTERS[rest]}" if small else words


def since(timestamp: Any, now: float) -> str:
    """How long ago it was; `<unknown>` where an object does not say when."""
    return duration(now - parse_time(timestamp)) if timestamp else "<unknown>"
