"""Pieces of styled text that are measured, cut with a sign, and joined to lines. Pure."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from rich.cells import cell_len, set_cell_size

from libs.ctl.text import printable

CUT: Final = "…"
"""Stands where text was cut."""
FULL, EMPTY = "█", "░"


class Span(msgspec.Struct, frozen=True):
    """Text in one style, in the words of `rich`."""

    text: str
    style: str = ""


Line: TypeAlias = tuple[Span, ...]


def width_of(text: str) -> int:
    """Return the cells that text takes."""
    return len(text) if text.isascii() else cell_len(text)


def clean(text: str) -> str:
    """Return text without what would control the terminal."""
    return text if text.isprintable() else printable(text)


def cut(text: str, width: int) -> str:
    """Return text that takes `width` cells at most, with a sign where it was cut."""
    text = clean(text)
    if width_of(text) <= width:
        return text
    return "" if width < 1 else set_cell_size(text, width - 1).rstrip() + CUT


def cut_middle(text: str, width: int) -> str:
    """Return text cut in its middle: the names of nodes differ at their ends."""
    text = clean(text)
    if width_of(text) <= width or width < 4:
        return cut(text, width)
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}{CUT}{text[-tail:]}"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return text that takes exactly `width` cells."""
    text = cut(text, width)
    blank = " " * (width - width_of(text))
    return f"{blank}{text}" if right else f"{text}{blank}"


def fold(text: str, width: int) -> list[str]:
    """Return text in lines that take `width` cells at most."""
    lines = textwrap.wrap(clean(text), width) or [""]
    return [part for line in lines for part in _halves(line, width)]


def _halves(line: str, width: int) -> list[str]:
    """Split a line whose characters are wider than one cell."""
    if width_of(line) <= width or len(line) < 2:
        return [line]
    middle = len(line) // 2
    return [*_halves(line[:middle], width), *_halves(line[middle:], width)]


def fit(spans: Iterable[Span], width: int) -> Line:
    """Return a line of `width` cells at most, with a sign where it was cut."""
    line: list[Span] = []
    left = width
    for span in spans:
        text = clean(span.text)
        taken = width_of(text)
        if taken > left:
            line.append(Span(cut(text, left) or CUT, span.style))
            return _without_overflow(line, width)
        line.append(Span(text, span.style))
        left -= taken
    return tuple(line)


def _without_overflow(line: list[Span], width: int) -> Line:
    """Give the sign of a cut its cell where the line was full before it."""
    if sum(width_of(span.text) for span in line) > width:
        *rest, last, sign = line
        return (
            *rest,
            Span(cut(f"{last.text} ", width_of(last.text)), last.style),
            Span("", sign.style),
        )
    return tuple(line)


def sides(left: Sequence[Span], right: Sequence[Span], width: int) -> Line:
    """Return a line with a part at each side; the left one is cut if both do not fit."""
    taken = sum(width_of(span.text) for span in right)
    if taken + 8 > width:
        return fit(left, width)
    start = fit(left, width - taken - 1)
    blank = width - taken - sum(width_of(span.text) for span in start)
    return fit((*start, Span(" " * blank), *right), width)


def bar(share: float, width: int) -> str:
    """Return a bar of `width` cells, of which a share is full: one cell where it is above 0."""
    share = min(1.0, max(0.0, share))
    full = min(width, max(round(share * width), 1 if share > 0 else 0))
    if share < 1:
        full = min(full, width - 1)
    return FULL * full + EMPTY * (width - full)


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(span.text for span in line)
