"""A whole frame: pools, nodes, the selected node, events, sources and keys. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from libs.contracts.rollout import Brake, RolloutPhase, left_out
from libs.ctl.text import clock_time, duration, plural
from libs.ctl.views.frame.heat import map_lines, map_shape, places_below
from libs.ctl.views.frame.nodes import (
    DETAIL_LINES,
    NARROW,
    columns,
    detail_lines,
    head_line,
    node_line,
)
from libs.ctl.views.frame.panel import panel_lines
from libs.ctl.views.frame.text import Line, Span, bar, cut_middle, fit, sides, width_of
from libs.ctl.watch.screen import Layout, Screen, Watched, selected_index
from libs.fleet.pools import Pool, is_told_by_brake
from libs.fleet.status import EventLine, Source

KEYS: Final = (
    ("q", "quit"),
    ("w", "why"),
    ("p", "pause"),
    ("r", "resume"),
    ("l", "release"),
    ("m", "map or rows"),
    ("?", "help"),
)
_POOL_LINES: Final = 2
_FIXED_LINES: Final = 3
"""Title, sources, keys."""
_LEAST_BODY: Final = 5
_LEAST_WIDTH: Final = 20
_BUDGET_BAR: Final = 12
_CURRENT: Final = 90.0
"""Seconds without a word up to which a source counts as current: what changes is told at once, but
the API server confirms only each minute that nothing else has."""


class Frame(msgspec.Struct, frozen=True):
    """All lines of a screen."""

    lines: tuple[Line, ...]


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines each part of the screen has."""

    pools: int
    body: int
    detail: int
    events: int


def rooms(pools: int, height: int) -> Rooms:
    """Divide the screen. It depends on its height and the number of pools, on nothing that changes
    while a rollout goes on.
    """
    events = 1 + max(0, min(9, (height - 18) // 3))
    detail = DETAIL_LINES if height >= 16 else 0
    events = events if height >= 12 else 0
    left = height - _FIXED_LINES - detail - events
    shown = max(1, min(pools, (left - _LEAST_BODY * 2) // _POOL_LINES))
    lines = shown * _POOL_LINES + (shown < pools)
    return Rooms(pools=lines, body=max(0, left - lines), detail=detail, events=events)


def frame(watched: Watched, screen: Screen, *, now: float, width: int, height: int) -> Frame:
    """Return the lines for a terminal of this size."""
    width = max(_LEAST_WIDTH, width)
    divided = rooms(len(watched.pools), height)
    nodes = watched.nodes
    selected = nodes[selected_index(nodes, screen)] if nodes else None
    if screen.panel is not None:
        body = panel_lines(screen.panel, width=width, room=divided.body)
    else:
        body = _body(watched, screen, now=now, width=width, room=divided.body)
    detail = detail_lines(selected, now=now, width=width) if divided.detail else []
    lines = [
        _title(watched, screen, now=now, width=width, room=divided.body),
        *_padded(_pools(watched, divided.pools, width), divided.pools),
        *_padded(body, divided.body),
        *detail,
        *_events(watched.events, divided.events, width),
        _sources(watched.sources, width),
        _footer(screen, width),
    ]
    return Frame(tuple(lines[: max(1, height)]))


def shows_map(watched: Watched, screen: Screen, *, height: int) -> bool:
    """Report whether the nodes are shown as a map."""
    return _is_map(watched, screen, room=rooms(len(watched.pools), height).body)


def _is_map(watched: Watched, screen: Screen, *, room: int) -> bool:
    if screen.layout is Layout.AUTOMATIC:
        return len(watched.nodes) > room - 1
    return screen.layout is Layout.MAP


def listed_room(watched: Watched, *, width: int, height: int) -> int:
    """Return how many nodes are listed below a map on this screen."""
    body = rooms(len(watched.pools), height).body
    return places_below(len(watched.nodes), width=max(_LEAST_WIDTH, width), room=body)


def _padded(lines: Sequence[Line], room: int) -> list[Line]:
    return [*lines[:room], *([()] * (room - len(lines)))]


def _title(watched: Watched, screen: Screen, *, now: float, width: int, room: int) -> Line:
    count = len(watched.nodes)
    nodes = "1 node" if count == 1 else f"{count:,} nodes"
    if _is_map(watched, screen, room=room):
        per_cell, _ = map_shape(count, width=width, room=room)
        nodes += f", a letter is the worst of {per_cell}" if per_cell > 1 else ""
    clock = Span(f"{clock_time(now)[11:]} UTC", "dim")
    where = watched.address if watched.guide is None else watched.guide.title
    left = (Span("Sluice", "bold"), Span(f"  {nodes}  {where}"))
    if watched.guide is not None and sum(map(_width, (*left, clock))) >= width:
        return fit(left, width)  # the line to type stays whole, and the time gives way
    return sides(left, [clock], width)


def _width(span: Span) -> int:
    return width_of(span.text)


def _pools(watched: Watched, room: int, width: int) -> list[Line]:
    if not watched.pools:
        is_read = all(each.age is not None or each.problem for each in watched.sources[:1])
        text = "There is no pool yet: no policy selects a node with GPUs."
        text = text if is_read else "Reading nodes and pools …"
        return [fit([Span(text)], width)]
    lines: list[Line] = []
    shown = min(len(watched.pools), room // _POOL_LINES)
    for pool in watched.pools[:shown]:
        lines += _pool(pool, width)
    if rest := len(watched.pools) - shown:
        text = f"… {plural(rest, 'more pool')}: sluice watch POOL shows one"
        lines.append(fit([Span(text, "dim")], width))
    return lines


def _pool(pool: Pool, width: int) -> Iterator[Line]:
    """Yield a pool's rollout, and its budget as a bar."""
    rollout = [Span(f"  {pool.version or 'no driver'}  "), _phase(pool)]
    if pool.brake != Brake.NONE:
        rollout += [Span("  "), Span(pool.brake, "bold reverse")]
    done = [Span(f"done {pool.counts['done']}/{pool.counts['total']}", "green")]
    if failed := pool.counts["failed"]:
        done += [Span("  "), Span(f"failed {failed}", "bold red")]
    budget = _budget(pool, has_bar=width >= NARROW)
    remark = Span(f"   {_remark(pool)}")
    if width >= NARROW:
        yield sides([Span(pool.name, "bold"), *rollout], done, width)
        yield fit([*budget, remark], width)
        return
    room = width - sum(width_of(span.text) for span in rollout)
    yield fit([Span(cut_middle(pool.name, max(4, room)), "bold"), *rollout], width)
    yield fit([*budget, Span("  "), *done, remark], width)


def _budget(pool: Pool, *, has_bar: bool) -> list[Span]:
    unavailable, limit = pool.counts["unavailable"], pool.counts["limit"]
    style = "bold red" if unavailable > limit else "cyan"
    if not has_bar:
        return [Span("  "), Span(f"{unavailable}/{limit}", style), Span(" unavailable")]
    share = 1.0 if unavailable > limit else unavailable / max(1, limit)
    return [
        Span("  unavailable "),
        Span(bar(share, _BUDGET_BAR), style),
        Span(f" {unavailable} of {limit} allowed"),
    ]


def _remark(pool: Pool) -> str:
    """Return why the pool is in its phase, otherwise how many of its nodes wait for what, and how
    many are left out.
    """
    remark = _stopped_by(pool) if is_told_by_brake(pool) else pool.because
    if not remark and pool.waits:
        waits = sorted(pool.waits.items(), key=lambda each: (-each[1], each[0]))
        remark = f"waits: {', '.join(f'{count} {code}' for code, count in waits)}"
    out = left_out(skipped=pool.counts["skipped"], excluded=pool.counts["excluded"])
    return "; ".join(filter(None, (remark, "" if out == remark else out)))


def _stopped_by(pool: Pool) -> str:
    """Return who set the brake, which is shown beside the phase, and why."""
    author = pool.brake_set
    if author is None:
        return ""
    return f"set by {author.name}{f': {author.reason}' if author.reason else ''}"


def _phase(pool: Pool) -> Span:
    styles = {RolloutPhase.HALTED.value: "bold red", RolloutPhase.COMPLETE.value: "green"}
    return Span(pool.phase, styles.get(pool.phase, ""))


def _body(watched: Watched, screen: Screen, *, now: float, width: int, room: int) -> list[Line]:
    nodes = watched.nodes
    if not nodes:
        return [(), fit([Span("  There is no node with GPUs yet.")], width)]
    if _is_map(watched, screen, room=room):
        return map_lines(watched, screen, now=now, width=width, room=room)
    return _rows(watched, screen, now=now, width=width, room=room)


def _rows(watched: Watched, screen: Screen, *, now: float, width: int, room: int) -> list[Line]:
    """Return the page of rows that has the selected node, and how many are above and below."""
    nodes = watched.nodes
    chosen = columns(nodes, width, is_measured=watched.is_measured)
    page = page_rows(len(nodes), room)
    index = selected_index(nodes, screen)
    start = index // page * page
    lines = [head_line(chosen, width, is_measured=watched.is_measured)]
    for number, node in enumerate(nodes[start : start + page], start):
        lines.append(node_line(node, chosen, now=now, width=width, selected=number == index))
    if len(nodes) > page:
        below = max(0, len(nodes) - start - page)
        lines += [()] * (room - 1 - len(lines))
        lines.append(fit([Span(f"  … {start:,} more above, {below:,} more below", "dim")], width))
    return lines


def page_rows(count: int, room: int) -> int:
    """Return how many rows are shown at once; a line tells of others."""
    return max(1, room - 1 if count <= room - 1 else room - 2)


def _events(events: Sequence[EventLine], room: int, width: int) -> list[Line]:
    if not room:
        return []
    shown = list(events[-room:])
    return [*([()] * (room - len(shown))), *(_event(each, width) for each in shown)]


def _event(event: EventLine, width: int) -> Line:
    node = f"{event.node}: " if event.node and event.node not in event.message else ""
    at = clock_time(event.at)[11:]
    return fit([Span(f"{at}  ", "dim"), Span(f"{node}{event.message}")], width)


def _sources(sources: Sequence[Source], width: int) -> Line:
    """Say whether the figures are current, and of the sources that are away why."""
    spans: list[Span] = []
    for source in sources:
        spans += [Span("  "), _source(source)] if spans else [_source(source)]
    return fit(spans, width)


def _source(source: Source) -> Span:
    if source.problem:
        last = "" if source.age is None else f", last confirmed {duration(source.age)} ago"
        return Span(f"{source.gives}: {source.problem}{last}", "bold yellow")
    if source.age is None:
        return Span(f"{source.gives}: not read yet", "bold yellow")
    if source.age <= _CURRENT:
        return Span(f"{source.gives}: current", "dim")
    return Span(f"{source.gives}: last confirmed {duration(source.age)} ago", "bold yellow")


def _footer(screen: Screen, width: int) -> Line:
    if screen.panel is not None and screen.panel.asks:
        return fit(
            [
                Span("y", "bold"),
                Span(" do it   "),
                Span("any other key", "bold"),
                Span(" do nothing"),
            ],
            width,
        )
    if screen.panel is not None:
        return fit(
            [Span("q", "bold"), Span(" back   "), Span("arrows", "bold"), Span(" scroll")], width
        )
    if screen.message:
        return fit([Span(screen.message, "bold")], width)
    shown = list(KEYS)
    while len(shown) > 2 and len("   ".join(f"{key} {name}" for key, name in shown)) > width:
        shown.pop(-2)  # help, which lists all, stays
    spans: list[Span] = []
    for key, name in shown:
        spans += [Span("   " if spans else ""), Span(key, "bold"), Span(f" {name}")]
    return fit(spans, width)
