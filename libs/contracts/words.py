"""Words for people: texts of others made fit to be shown, lists, counts, durations, times. Pure.

They are the lowest layer, since a text goes through all of them: a node's agent sends it, the
scheduler stores it, and the command shows it. What people read in one place, they search for in
another, so that the same thing is in the same words everywhere.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


# Texts of others: names, reasons and errors that nodes, servers and users write.


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Replace each character that would control a terminal or begin a line.

    With an empty `instead` they are left out: of a name that is looked for, not of a text that is
    read, in which something is then missing unseen.
    """
    if text.isprintable():  # as nearly all are; asking costs a hundredth of the loop
        return text
    return "".join(each if each.isprintable() else instead for each in text)


def one_line(text: str, most: int) -> str:
    """Return the first characters of an error, whose line breaks and the like become spaces."""
    return printable(text[:most], " ")


def shorten(text: str, most: int) -> str:
    """Return the text, or its beginning and `…`: in all, `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def excerpt(text: str, most: int = 80) -> str:
    """Quote a text in a message: shortened, with `?` for each character that cannot be shown.

    What a lone surrogate stands for cannot be sent either, and becomes `?` too.
    """
    return printable(shorten(text, most), "?")


# Lists and counts.


def first_few(names: Iterable[str], most: int = 5, *, between: str = ", ") -> str:
    """Join the first names and count the others: `a, b and 3 more`."""
    listed = list(names)
    rest = len(listed) - most
    return between.join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


def first_sentences(texts: Iterable[str], most: int) -> str:
    """Join the first sentences and count the others: `a failed; b failed; and 3 more`."""
    listed = list(texts)
    rest = len(listed) - most
    return "; ".join([*listed[:most], *([f"and {rest} more"] if rest > 0 else [])])


def plural(count: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# Times.


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


def clock_time(at: float) -> str:
    """Return a date and time of day in UTC, for whose name the caller has room or not."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
