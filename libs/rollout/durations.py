"""Durations in words. Pure."""

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
