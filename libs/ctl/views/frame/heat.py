"""Many nodes as a map, a letter for each; and below it those that are not done. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from libs.ctl.text import plural
from libs.ctl.views.frame.nodes import STYLES, Column, columns, head_line, node_line
from libs.ctl.views.frame.text import Line, Span, fit
from libs.ctl.watch.fleet import Kind, Watched, WatchedNode
from libs.ctl.watch.screen import Screen, selected_index

LETTERS: Final[Mapping[Kind, str]] = {
    Kind.FAILED: "F",
    Kind.IN_FLIGHT: "u",
    Kind.WAITING: "w",
    Kind.NONE: "?",
    Kind.SKIPPED: "s",
    Kind.CORDONED: "c",
    Kind.DONE: "·",
}
"""By kind, the worst first: a letter, so that a map without colours can be read."""
_RANK: Final = {kind: rank for rank, kind in enumerate(LETTERS)}
_LEGEND: Final = 1
_HEAD: Final = 1
_LEAST_LISTED: Final = 3
_AT_REST: Final = (Kind.DONE, Kind.CORDONED, Kind.SKIPPED, Kind.NONE)


def map_shape(count: int, *, width: int, room: int) -> tuple[int, int]:
    """Return the nodes in a cell and the lines of the map, which takes two thirds at most."""
    lines = max(1, min((room - _LEGEND) * 2 // 3, room - _LEGEND - _HEAD - _LEAST_LISTED))
    per_cell = max(1, -(-count // (lines * width)))
    cells = -(-count // per_cell)
    return per_cell, max(1, -(-cells // width))


def places_below(count: int, *, width: int, room: int) -> int:
    """Return how many nodes are listed below the map."""
    _, lines = map_shape(count, width=width, room=room)
    return max(0, room - _LEGEND - lines - _HEAD - 1)


def map_lines(watched: Watched, screen: Screen, *, now: float, width: int, room: int) -> list[Line]:
    """Return legend, map, and the nodes at their places below it: `room` lines at most."""
    nodes = watched.nodes
    per_cell, _ = map_shape(len(nodes), width=width, room=room)
    chosen = columns(nodes, width, is_measured=watched.is_measured)
    lines = [_legend(nodes, width), *_cells(nodes, screen, per_cell, width)]
    lines.append(head_line(chosen, width, is_measured=watched.is_measured))
    lines += _listed(nodes, screen, chosen, now=now, width=width)
    return lines[:room]


def _legend(nodes: Sequence[WatchedNode], width: int) -> Line:
    counts = Counter(node.kind for node in nodes)
    spans: list[Span] = []
    for kind, letter in LETTERS.items():
        if counts[kind]:
            gap = [Span("  ")] if spans else []
            count = Span(f" {counts[kind]:,} {kind.value}")
            spans += [*gap, Span(letter, STYLES[kind]), count]
    return fit(spans, width)


def _cells(
    nodes: Sequence[WatchedNode], screen: Screen, per_cell: int, width: int
) -> Iterator[Line]:
    worst = [
        min((node.kind for node in nodes[start : start + per_cell]), key=_RANK.__getitem__)
        for start in range(0, len(nodes), per_cell)
    ]
    marked = selected_index(nodes, screen) // per_cell
    for start in range(0, len(worst), width):
        line: list[Span] = []
        run, style = "", ""
        for index in range(start, min(start + width, len(worst))):
            kind = worst[index]
            wanted = f"{STYLES[kind]} reverse" if index == marked else STYLES[kind]
            if wanted != style and run:
                line.append(Span(run, style))
                run = ""
            run, style = run + LETTERS[kind], wanted
        yield (*line, Span(run, style))


def _listed(
    nodes: Sequence[WatchedNode],
    screen: Screen,
    chosen: Sequence[Column],
    *,
    now: float,
    width: int,
) -> Iterator[Line]:
    by_name = {node.row.name: node for node in nodes}
    marked = nodes[selected_index(nodes, screen)].row.name
    shown = 0
    for name in screen.places:
        node = by_name.get(name)
        if node is None:
            yield ()
            continue
        shown += 1
        yield node_line(node, chosen, now=now, width=width, selected=name == marked)
    open_ = sum(node.kind not in _AT_REST for node in nodes)
    if open_ > shown:
        more = plural(open_ - shown, "more node")
        yield fit(
            [Span(f"  … {more} {'is' if open_ - shown == 1 else 'are'} not done", "dim")], width
        )
