"""A picture of a rollout as SVG: bars, a scale, and the capacity as a curve. Pure.

One self-contained file: no script, no reference to anything outside. It follows the reader's dark
or light scheme, is light when printed, and tells each kind of bar apart without colour.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from libs.ctl.views.markup import marked, number
from libs.ctl.views.timeline import RolloutPage, Row, Span, Timeline, times

_WIDTH: Final = 1000
_LEFT: Final = 210
_RIGHT: Final = 165
_EDGE: Final = 16
_CELLS: Final = 27
"""Characters of a name that fit on the left."""
_ROW: Final = 24
_BAR: Final = 14
_THIN: Final = 6
_CURVE: Final = 90
_TITLE: Final = 34
_MARKS: Final = 8
_STEPS: Final = 120
"""Steps of the curve, each wide enough to be seen."""
_BARS: Final = _WIDTH - _LEFT - _RIGHT - _EDGE

_STYLE: Final = """
svg.sluice { --page: #ffffff; --ink: #1b1f24; --dim: #59636e; --rule: #d1d9e0;
  --bar: #1a7f4b; --late: #9a6700; --area: #0969da; --wash: #f2f5f8; background: var(--page); }
@media (prefers-color-scheme: dark) { svg.sluice { --page: #0d1117; --ink: #e6edf3;
  --dim: #9198a1; --rule: #3d444d; --bar: #3fb970; --late: #d9a326; --area: #5aa7ff;
  --wash: #161b22; } }
@media print { svg.sluice { --page: #ffffff; --ink: #000000; --dim: #444444; --rule: #bbbbbb;
  --bar: #333333; --late: #555555; --area: #555555; --wash: #ffffff; }
  svg.sluice .bar, svg.sluice .area { print-color-adjust: exact; } }
svg.sluice text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: var(--ink); }
svg.sluice .name { font: 12px ui-monospace, Menlo, Consolas, monospace; }
svg.sluice .title { font-size: 16px; font-weight: 600; }
svg.sluice .dim { fill: var(--dim); font-size: 12px; }
svg.sluice .end { text-anchor: end; }
svg.sluice .middle { text-anchor: middle; }
svg.sluice .rule { stroke: var(--rule); stroke-width: 1; }
svg.sluice .wash { fill: var(--wash); }
svg.sluice .page { fill: var(--page); }
svg.sluice .bar { fill: var(--bar); }
svg.sluice .late { fill: url(#late); stroke: var(--late); stroke-width: 1; }
svg.sluice .planned { fill: none; stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 2; }
svg.sluice .hatch { stroke: var(--late); stroke-width: 1.5; }
svg.sluice .area { fill: var(--area); fill-opacity: 0.2; stroke: var(--area); stroke-width: 1.5; }
"""
_HATCH: Final = (
    '<defs><pattern id="late" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><path class="hatch" d="M0 0V6"/></pattern></defs>'
)


def rollout_svg(page: RolloutPage) -> str:
    """Return the picture of a rollout, with its title and its facts."""
    facts = (f"{name}: {text}" for name, text in page.facts)
    return timeline_svg(page.timeline, title=page.title, facts=facts)


def timeline_svg(timeline: Timeline, *, title: str, facts: Iterable[str] = ()) -> str:
    """Return the picture as an SVG document, which HTML may contain as well."""
    body: list[str] = []
    top = float(_EDGE)
    if title:
        body.append(_text(_EDGE, top + 16, title, "title"))
        top += _TITLE
    for fact in facts:
        body.append(_text(_EDGE, top + 10, fact, "dim"))
        top += 19
    top += 8 if title else 0
    if timeline.rows:
        body += _picture(timeline, top)
        top += _height(timeline)
    height = number(top + _EDGE)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sluice" role="img"'
        f' viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        ' style="max-width:100%;height:auto">'
        f"<title>{marked(title or 'timeline')}</title><style>{_STYLE}</style>{_HATCH}"
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>' + "".join(body) + "</svg>\n"
    )


def _height(timeline: Timeline) -> float:
    below = 40 + _CURVE + 28 if timeline.total else 42
    return len(timeline.rows) * _ROW + below


def _picture(timeline: Timeline, top: float) -> Iterator[str]:
    bottom = top + len(timeline.rows) * _ROW
    for place in range(0, len(timeline.rows), 2):
        y = top + place * _ROW
        yield _rect(_EDGE, y, _WIDTH - 2 * _EDGE, _ROW, "wash")
    curve_top = bottom + 40
    floor = curve_top + _CURVE if timeline.total else bottom
    yield from _marks(timeline, top, bottom, floor)
    for place, row in enumerate(timeline.rows):
        yield from _row(row, timeline, top + place * _ROW)
    if timeline.total:
        yield from _curve(timeline, curve_top)
    yield from _legend(timeline, floor + (28 if timeline.total else 42))


def _x(seconds: float, timeline: Timeline) -> float:
    return _LEFT + _BARS * min(seconds, timeline.seconds) / timeline.seconds


def _marks(timeline: Timeline, top: float, bottom: float, floor: float) -> Iterator[str]:
    for mark in timeline.marks(_MARKS):
        x = number(_x(mark, timeline))
        yield f'<path class="rule" d="M{x} {number(top)}V{number(floor)}"/>'
        yield _text(float(x), bottom + 16, timeline.mark_name(mark), "dim middle")


def _row(row: Row, timeline: Timeline, y: float) -> Iterator[str]:
    name = row.name if len(row.name) <= _CELLS else f"{row.name[: _CELLS - 1]}…"
    told = "; ".join(_told(row, timeline))
    yield f"<g><title>{marked(f'{row.name}: {told}')}</title>"
    yield _text(_EDGE + 4, y + _ROW / 2 + 4, name, "name")
    if row.happened is None:
        yield from _span(row.plan, timeline, y + (_ROW - _BAR) / 2, _BAR)
    else:
        if row.plan is not None:
            yield _planned(row.plan, timeline, y + 2)
        yield from _span(row.happened, timeline, y + _ROW - 2 - _BAR + _THIN / 2, _BAR - _THIN / 2)
    shown = row.happened or row.plan
    if shown is not None:
        yield _text(_WIDTH - _EDGE - 4, y + _ROW / 2 + 4, times(shown), "dim end")
    yield "</g>"


def _told(row: Row, timeline: Timeline) -> Iterator[str]:
    if row.plan is not None:
        word = "planned" if timeline.is_comparison else "likely"
        yield f"{word} {times(row.plan)}"
    if row.happened is not None:
        yield f"happened {times(row.happened)}"


def _span(span: Span | None, timeline: Timeline, y: float, height: float) -> Iterator[str]:
    if span is None:
        return
    start, end, late = (_x(each, timeline) for each in (span.start, span.end, span.late))
    yield _rect(start, y, max(2.0, end - start), height, "bar")
    if late - end >= 1.0:
        yield _rect(end, y + 2, late - end, height - 4, "late")
    if span.is_open:
        yield _text(late + 6, y + height - 2, "?", "")


def _planned(span: Span, timeline: Timeline, y: float) -> str:
    start, end = _x(span.start, timeline), _x(span.end, timeline)
    return _rect(start, y, max(2.0, end - start), _BAR, "planned")


def _curve(timeline: Timeline, top: float) -> Iterator[str]:
    def height(available: int) -> str:
        return number(top + _CURVE * (1 - available / timeline.total))

    floor = number(top + _CURVE)
    steps = timeline.least(_STEPS)
    path = f"M{_LEFT} {floor}V{height(steps[0])}"
    for place, (before, after) in enumerate(pairwise(steps), start=1):
        if before != after:
            path += f"H{number(_LEFT + _BARS * place / _STEPS)}V{height(after)}"
    right = number(_x(timeline.seconds, timeline))
    least = timeline.available_within(0.0, timeline.seconds)
    yield f'<path class="rule" d="M{_LEFT} {number(top)}H{right}"/>'
    yield f'<path class="area" d="{path}H{right}V{floor}Z">'
    told = f"{timeline.unit} available: at least {least} of {timeline.total}"
    yield f"<title>{marked(told)}</title></path>"
    yield _text(_LEFT - 8, top + 5, f"{timeline.total} {timeline.unit}", "dim end")
    yield _text(_LEFT - 8, top + _CURVE + 4, f"0 {timeline.unit}", "dim end")
    yield _text(_LEFT - 8, top + _CURVE / 2 + 4, "available", "dim end")
    yield _text(_WIDTH - _EDGE - 4, top + 5, f"at least {least} of {timeline.total}", "dim end")
    yield _text(_WIDTH - _EDGE - 4, top + 24, "in the median run", "dim end")


def _legend(timeline: Timeline, y: float) -> Iterator[str]:
    together = max(row.nodes for row in timeline.rows)
    if together > 1:
        yield _text(_WIDTH - _EDGE - 4, y, f"up to {together} nodes in a row", "dim end")
    if timeline.is_comparison:
        yield _rect(_LEFT, y - 10, 26, 12, "planned") + _text(_LEFT + 34, y, "planned (p50)", "dim")
        yield _rect(_LEFT + 150, y - 10, 26, 12, "bar")
        yield _text(_LEFT + 184, y, "happened", "dim")
        return
    likely = "in the median run" if timeline.is_one_run else "likely (p50)"
    yield _rect(_LEFT, y - 10, 26, 12, "bar") + _text(_LEFT + 34, y, likely, "dim")
    yield _rect(_LEFT + 150, y - 10, 26, 12, "late")
    yield _text(_LEFT + 184, y, "at the latest (p95)", "dim")


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect class="{kind}" {place}/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{number(x)}" y="{number(y)}" class="{kind}">{marked(text)}</text>'
