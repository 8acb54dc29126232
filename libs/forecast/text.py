"""Format numbers and names for people."""

from collections.abc import Sequence

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def format_duration(seconds: float | None) -> str:
    """Format a duration; None: unknown."""
    if seconds is None:
        return "an unknown time"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        hours, rest = divmod(round(seconds / _MINUTE), 60)
        return f"{hours} h {rest:02d} min"
    return f"{seconds / _DAY:.1f} days"


def format_count(number: int, what: str) -> str:
    """Format a count: `1 node`, `2 nodes`."""
    return f"{number} {what if number == 1 else what + 's'}"


def format_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
