"""Many nodes as a map, a letter for each; and below it those that are not done. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from libs.ctl.text import plural
from libs.ctl.views.frame.nodes import STYLES, Column, columns, head_line, node_line
from libs.ctl.views.frame.text import Line, Span, fit
from libs.ctl.watch.screen import Screen, Watched, selected_index
from libs.fleet.node import Doing, FollowedNode

LETTERS: Final[Mapping[Doing, str]] = {
    Doing.FAILED: "F",
    Doing.IN_FLIGHT: "u",
    Doing.WAITING: "w",
    Doing.UNMANAGED: "?",
    Doing.SKIPPED: "s",
    Doing.CORDONED: "c",
    Doing.DONE: "·",
}
"""By what a node does, the worst first: a letter, so that a map without colours can be read."""
_RANK: Final = {doing: rank for rank, doing in enumerate(LETTERS)}
_LEGEND: Final = 1
_HEAD: Final = 1
_LEAST_LISTED: Final = 3
_AT_REST: Final = (Doing.DONE, Doing.CORDONED, Doing.SKIPPED, Doing.UNMANAGED)


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


def _legend(nodes: Sequence[FollowedNode], width: int) -> Line:
    counts = Counter(node.doing for node in nodes)
    spans: list[Span] = []
    for doing, letter in LETTERS.items():
        if counts[doing]:
            gap = [Span("  ")] if spans else []
            count = Span(f" {counts[doing]:,} {doing.value}")
            spans += [*gap, Span(letter, STYLES[doing]), count]
    return fit(spans, width)


def _cells(
    nodes: Sequence[FollowedNode], screen: Screen, per_cell: int, width: int
) -> Iterator[Line]:
    worst = [
        min((node.doing for node in nodes[start : start + per_cell]), key=_RANK.__getitem__)
        for start in range(0, len(nodes), per_cell)
    ]
    marked = selected_index(nodes, screen) // per_cell
    for start in range(0, len(worst), width):
        line: list[Span] = []
        run, style = "", ""
        for index in range(start, min(start + width, len(worst))):
            doing = worst[index]
            wanted = f"{STYLES[doing]} reverse" if index == marked else STYLES[doing]
            if wanted != style and run:
                line.append(Span(run, style))
                run = ""
            run, style = run + LETTERS[doing], wanted
        yield (*line, Span(run, style))


def _listed(
    nodes: Sequence[FollowedNode],
    screen: Screen,
    chosen: Sequence[Column],
    *,
    now: float,
    width: int,
) -> Iterator[Line]:
    by_name = {node.name: node for node in nodes}
    marked = nodes[selected_index(nodes, screen)].name
    shown = 0
    for name in screen.places:
        node = by_name.get(name)
        if node is None:
            yield ()
            continue
        shown += 1
        yield node_line(node, chosen, now=now, width=width, selected=name == marked)
    open_ = sum(node.doing not in _AT_REST for node in nodes)
    if open_ > shown:
        more = plural(open_ - shown, "more node")
        yield fit(
            [Span(f"  … {more} {'is' if open_ - shown == 1 else 'are'} not done", "dim")], width
        )
