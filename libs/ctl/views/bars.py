"""A picture of a rollout in the terminal: bars, a scale, and the capacity as a curve. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from libs.ctl.text import printable
from libs.ctl.views.layout import line
from libs.ctl.views.timeline import Span, Timeline, times

_LIKELY: Final = "█"
_LATE: Final = "░"
_PLANNED: Final = "▒"
_OPEN: Final = "?"
_PARTS: Final = " ▁▂▃▄▅▆▇█"
_LEAST_BAR: Final = 10
_MOST_BAR: Final = 120
_PERCENTILES: Final = f"{_LIKELY} p50  {_LATE} p95"
_RUN: Final = f"{_LIKELY} median run  {_LATE} p95"
_BESIDE: Final = f"{_PLANNED} planned (p50)  {_LIKELY} happened"
_MARK_CELLS: Final = 13
"""Cells between two marks of the scale, at least: a mark and its time fit."""
_CURVE_LINES: Final = 2


class _Line(NamedTuple):
    name: str
    """Empty: it belongs to the name above."""
    span: Span
    planned: bool
    """Planned, beside what happened."""


def picture(timeline: Timeline, *, width: int) -> Iterator[RenderableType]:
    """Yield a bar for each row, with its times, the scale, the curve and what the signs mean."""
    lines = list(_lines(timeline))
    axis = [_amount(timeline, timeline.total)] if timeline.total else []
    names = max(cell_len(name) for name in [*(each.name for each in lines), *axis])
    right = max(len(times(each.span)) for each in lines)
    notes = _curve_notes(timeline) if timeline.total else ()
    right = max([right, *map(len, notes)])
    cells = min(width - names - right - 4, _MOST_BAR)
    if cells < _LEAST_BAR:
        yield from _narrow_picture(timeline, lines, cells=width - 2)
        return
    for each in lines:
        pad = " " * (names - cell_len(each.name))
        drawn = _bar(each, timeline.seconds, cells)
        text = f"  {times(each.span):>{right}}"
        yield Text.assemble(f"{each.name}{pad}  ", drawn, text, no_wrap=True)
    scale, legend = _scale(timeline, cells, names + 2), _legend(timeline)
    is_beside = cell_len(legend) <= right
    yield Text(f"{scale}  {legend:>{right}}" if is_beside else scale, style="dim", no_wrap=True)
    if timeline.total:
        yield from _curve(timeline, cells, names, notes)
    if not is_beside:
        yield line(legend, "dim")
    yield from _shared_rows(timeline)


def _lines(timeline: Timeline) -> Iterator[_Line]:
    for row in timeline.rows:
        name = printable(row.name)
        if row.plan is not None:
            yield _Line(name, row.plan, timeline.is_comparison)
        if row.happened is not None:
            yield _Line("" if row.plan is not None else name, row.happened, planned=False)


def _narrow_picture(
    timeline: Timeline, lines: list[_Line], *, cells: int
) -> Iterator[RenderableType]:
    """Yield the bars below their names, where the terminal is too narrow for both in a line."""
    for each in lines:
        if each.name:
            yield Text(each.name, style="bold", overflow="fold")
        yield Text(f"  {times(each.span)}", overflow="fold")
        drawn = _bar(each, timeline.seconds, cells)
        drawn.rstrip()
        yield Text.assemble("  ", drawn, no_wrap=True)
    yield Text(_scale(timeline, cells, 2), style="dim", no_wrap=True)
    yield line(_legend(timeline), "dim")
    yield from _shared_rows(timeline)


def _legend(timeline: Timeline) -> str:
    signs = _RUN if timeline.is_one_run else _PERCENTILES
    signs = _BESIDE if timeline.is_comparison else signs
    is_open = any(span.is_open for row in timeline.rows for span in row.spans)
    return f"{signs}  {_OPEN} the end is not known" if is_open else signs


def _shared_rows(timeline: Timeline) -> Iterator[RenderableType]:
    together = max(row.nodes for row in timeline.rows)
    if together > 1:
        yield line(f"up to {together} nodes in a row; -o wide has a row for each", "dim")


def _bar(each: _Line, seconds: float, cells: int) -> Text:
    drawn = bar(each.span, seconds=seconds, cells=cells)
    if each.planned:
        drawn = drawn.replace(_LATE, " ").replace(_LIKELY, _PLANNED)
    text = Text(f"{drawn:<{cells}}")
    text.highlight_regex(f"{_LIKELY}+", "green")
    text.highlight_regex(f"[{_LATE}{_OPEN}]+", "yellow")
    return text


def bar(span: Span, *, seconds: float, cells: int) -> str:
    """Return a time as a bar: from its likely start to its likely and to its latest end."""
    edges = (span.start, span.end, span.late)
    first, middle, last = (round(cells * min(each, seconds) / seconds) for each in edges)
    first = min(first, cells - 1)
    likely = max(1, middle - first)
    drawn = " " * first + _LIKELY * likely + _LATE * max(0, last - first - likely)
    return f"{drawn[: cells - 1]}{_OPEN}" if span.is_open else drawn


def _scale(timeline: Timeline, cells: int, indent: int) -> str:
    """Return marks at equal distances, each with its time where that has room."""
    drawn = ""
    for mark in timeline.marks(cells // _MARK_CELLS):
        place = min(cells - 1, round(cells * mark / timeline.seconds))
        name = f"{timeline.mark_name(mark)} "
        drawn = f"{drawn:─<{place}}┬"
        if len(drawn) + len(name) <= cells:
            drawn += name
    return " " * indent + f"{drawn:─<{cells}}"


def _amount(timeline: Timeline, number: int) -> str:
    return f"{number} {timeline.unit}"


def _curve_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return of which run the curve is, and its lowest value: a note for each of its lines."""
    least = timeline.available_within(0.0, timeline.seconds)
    return f"{timeline.unit}, median run:", f"at least {least} of {timeline.total}"


def _curve(
    timeline: Timeline, cells: int, names: int, notes: Sequence[str]
) -> Iterator[RenderableType]:
    """Yield what is available over time as columns, each the least of its time."""
    full = 8 * _CURVE_LINES
    least = [each / timeline.total for each in timeline.least(cells)]
    for number in range(_CURVE_LINES):
        floor = 8 * (_CURVE_LINES - 1 - number)
        drawn = "".join(_PARTS[min(8, max(0, round(full * share) - floor))] for share in least)
        label = _amount(timeline, timeline.total if number == 0 else 0)
        yield Text.assemble(
            (f"{label:>{names}}  ", "dim"),
            (drawn, "cyan"),
            (f"  {notes[number]}", "dim"),
            no_wrap=True,
        )
