"""A rollout as one self-contained page: facts, the picture, and each node in a table.

No script, and nothing is loaded. Pure.
"""

from collections.abc import Iterable
from typing import Final

from libs.ctl.views.markup import marked
from libs.ctl.views.rollout_svg import timeline_svg
from libs.ctl.views.timeline import RolloutPage

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


def rollout_html(page: RolloutPage) -> str:
    """Return the page of a rollout."""
    parts = [_pairs([*page.facts, *page.more_facts])]
    if page.timeline.rows:
        parts.append(timeline_svg(page.timeline, title=""))
    if page.in_the_way:
        parts.append(f"<h2>In the way</h2>{_pairs(page.in_the_way, kind='tall')}")
    if page.nodes:
        parts.append(f"<h2>Nodes</h2>{_table(page)}")
    if page.remarks:
        items = "".join(f"<li>{marked(each)}</li>" for each in page.remarks)
        parts.append(f"<h2>Remarks</h2><ul>{items}</ul>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'\">"
        f"<title>{marked(page.title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{marked(page.title)}</h1>{''.join(parts)}"
        f"<footer>{marked(page.footer)}</footer></body></html>\n"
    )


def _pairs(found: Iterable[tuple[str, str]], *, kind: str = "") -> str:
    """Return names with their texts."""
    items = "".join(f"<dt>{marked(name)}</dt><dd>{marked(text)}</dd>" for name, text in found)
    return f'<dl class="{kind}">{items}</dl>'


def _table(page: RolloutPage) -> str:
    head = "".join(f'<th scope="col">{marked(each)}</th>' for each in page.heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"time" if 0 < index <= page.times else ""}">{marked(cell)}</td>'
            for index, cell in enumerate(row)
        )
        + "</tr>"
        for row in page.nodes
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
