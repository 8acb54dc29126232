"""Words for people: times, counts, and text that harms no terminal. Pure."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from libs.contracts import words

clock_time: Final = words.clock_time
duration: Final = words.format_duration
plural: Final = words.plural
printable: Final = words.printable
_LONGEST: Final = 200
"""Characters of a name or a reason that are written."""
_LONG_WORD: Final = re.compile(rf"\S{{{_LONGEST + 1},}}")
_SUFFIXES: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_PLAIN: Final = re.compile(r"[\n -~]*")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)", re.ASCII)
_MOST_SECONDS: Final = 100 * 365 * 86_400.0
"""Nobody means a longer time than this, and a clock may not know it."""


def escaped(text: str) -> str:
    """Return JSON, or YAML in quotes, with what would control a terminal as escapes of that format.

    Its values stay the same: programs read what a node wrote, and a terminal shows no more of it.
    """
    return text if _PLAIN.fullmatch(text) else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def cut_words(text: str) -> str:
    """Shorten what nobody reads to its end: a name or a version of hundreds of characters."""
    return _LONG_WORD.sub(lambda found: f"{found[0][: _LONGEST - 1]}…", text)


def plain(text: str) -> str:
    """Return what a person wrote, cut, and as text that needs no escapes in JSON: by that the API
    server checks the owner of a lease.
    """
    unescaped = text.replace("\\", "/").replace('"', "'")
    return words.one_line(unescaped, _LONGEST).strip()


def parse_duration(text: str) -> float | None:
    """Return the seconds of `90m`, `2h` or `1h30m`; None for anything else, or for centuries."""
    parts = list(_DURATION.finditer(text.strip()))
    if not parts or "".join(part[0] for part in parts) != text.strip():
        return None
    seconds = sum(float(part[1]) * _SUFFIXES[part[2]] for part in parts)
    return seconds if seconds <= _MOST_SECONDS else None


def parse_time(text: str) -> float | None:
    """Return the Unix seconds of an ISO 8601 time; None for anything else."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):  # also of a year that has no timestamp here
        return None


def moment(at: float, now: float) -> str:
    """Return a time in UTC, without its date if that is today's: `15:36:15Z`."""
    date, _, clock = clock_time(at).partition(" ")
    return f"{clock}Z" if clock_time(now).startswith(date) else f"{date} {clock}Z"


def some(names: Iterable[str], shown: int = 3) -> str:
    """Join the first names, and say how many more there are."""
    return words.first_few(names, shown)
