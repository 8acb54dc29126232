"""A forecast as one self-contained page: what it costs, the picture, and each node in a table.

No script, and nothing is loaded. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from libs.contracts.queries import PlannedNode
from libs.ctl.answers import PlanView
from libs.ctl.text import clock_time, duration
from libs.ctl.views.markup import marked
from libs.ctl.views.plan import file_facts, obstacles, plan_title
from libs.ctl.views.plan_summary import stop_facts, summary
from libs.ctl.views.plan_svg import timeline_svg
from libs.ctl.views.timeline import Timeline, ordered, plan_timeline

_ROWS: Final = 120
"""Rows of bars; the table below has each node."""
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #59636e; --page: #ffffff;
  --rule: #d1d9e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --page: #0d1117;
  --rule: #3d444d; } }
body { font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; color: var(--ink);
  background: var(--page); max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1.2rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.tall { display: block; } .tall dt { margin-top: 0.5rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.85rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem 0.3rem 0;
  border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; }
td.time { white-space: nowrap; } td:first-child { min-width: 8rem; }
footer { color: var(--dim); margin-top: 2rem; font-size: 0.85rem; }
@media print { :root { --ink: #000000; --dim: #444444; --page: #ffffff; --rule: #bbbbbb; }
  body { margin: 0; max-width: none; font-size: 11px; } tr, svg { break-inside: avoid; }
  thead { display: table-header-group; } }
"""


def plan_svg(view: PlanView) -> str:
    """Return the picture of a forecast."""
    told = (*summary(view), *stop_facts(view))
    facts = (f"{name}: {text}" for name, text in told)
    return timeline_svg(_timeline(view), title=plan_title(view), facts=facts)


def plan_html(view: PlanView) -> str:
    """Return the page of a forecast."""
    plan = view.plan
    parts = [pairs([*summary(view), *stop_facts(view), *file_facts(view.file, most=0)])]
    timeline = _timeline(view)
    if timeline.rows:
        parts.append(timeline_svg(timeline, title=""))
    ways = list(obstacles(view, most=0))
    if ways:
        parts.append(f"<h2>In the way</h2>{pairs(ways, kind='tall')}")
    if plan.nodes:
        parts.append(f"<h2>Nodes</h2>{_table(ordered(plan.nodes))}")
    if plan.remarks:
        items = "".join(f"<li>{marked(each)}</li>" for each in plan.remarks)
        parts.append(f"<h2>Remarks</h2><ul>{items}</ul>")
    return page(plan_title(view), parts, footer=_made(view))


def _made(view: PlanView) -> str:
    at = "" if view.at is None else f" at {clock_time(view.at)} UTC"
    start = "when it goes on" if view.plan.stops else "then"
    return f"Made by sluice plan{at}; all times count from {start}."


def page(title: str, parts: Sequence[str], *, footer: str) -> str:
    """Return a page of these parts, which are HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'\">"
        f"<title>{marked(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{marked(title)}</h1>{''.join(parts)}"
        f"<footer>{marked(footer)}</footer></body></html>\n"
    )


def _timeline(view: PlanView) -> Timeline:
    return plan_timeline(view.plan, most_rows=_ROWS)


def pairs(found: Iterable[tuple[str, str]], *, kind: str = "") -> str:
    """Return names with their texts."""
    items = "".join(f"<dt>{marked(name)}</dt><dd>{marked(text)}</dd>" for name, text in found)
    return f'<dl class="{kind}">{items}</dl>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, times: int) -> str:
    """Return a table, of whose columns those up to `times` after the first are times."""
    head = "".join(f'<th scope="col">{marked(each)}</th>' for each in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"time" if 0 < index <= times else ""}">{marked(cell)}</td>'
            for index, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _table(nodes: Iterable[PlannedNode]) -> str:
    heads = ("Node", "Starts", "Ends", "At the latest", "Pods evicted", "Notes")
    return table(heads, (_cells(node) for node in nodes), times=3)


def _cells(node: PlannedNode) -> tuple[str, ...]:
    if node.start_p50 is None:
        return (node.node, "not", "", "", "", "; ".join(_notes(node)))
    found = (node.start_p50, node.end_p50, node.end_p95)
    spans = ("not known" if each is None else duration(each) for each in found)
    return (node.node, *spans, ", ".join(node.evicted), "; ".join(_notes(node)))


def _notes(node: PlannedNode) -> Iterator[str]:
    if node.wait is not None:
        yield f"in the end, {node.wait.code.value}: {node.wait.detail}"
    for lost in node.lost:
        yield f"lost: {lost}"
    for pod in node.without_place:
        yield f"fits on no other node now: {pod}"
    for budget in node.blocked_by:
        yield f"blocked by {budget}"
