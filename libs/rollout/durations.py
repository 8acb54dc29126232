"""Durations in words. Pure."""

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def format_duration(seconds: float | None) -> str:
    """Return `45 s`, `12 min`, `2 h 5 min`: two units at most; None: unknown."""
    if seconds is None:
        return "unknown"
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"
