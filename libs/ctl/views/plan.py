"""A forecast in the terminal: each node's time as a bar, the capacity, what it costs. Pure."""

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Final

from rich.console import Group, RenderableType

from libs.contracts.queries import PlannedNode, WaitReason
from libs.contracts.rollout import release_command
from libs.contracts.waits import RESOLVED_BY, WAITS_OF_POOLS, WaitCode, people_of
from libs.ctl.answers import PlannedFile, PlanView, PoolPlans
from libs.ctl.text import clock_time, duration, plural, some
from libs.ctl.views.bars import picture
from libs.ctl.views.layout import fact, heading, indented, line
from libs.ctl.views.plan_summary import stop_facts, summary
from libs.ctl.views.timeline import FILE_ROWS, RolloutPage, ordered, plan_timeline
from libs.rollout.plan_time import is_left_out

_ROWS: Final = 40
"""Rows of bars, in which nodes are together if there are more; with `-o wide` each has its own."""
NAMED: Final = 10
"""Nodes that are named in a sentence."""
_IN_SHORT: Final = 3
"""Those of a pool beside others."""


def plan_view(view: PlanView, *, width: int, wide: bool = False) -> RenderableType:
    """Return how long it takes, the costs, a bar for each node, and what stands in the way.

    A plan of a dozen nodes is to stay on a screen of 24 lines.
    """
    most = 0 if wide else NAMED
    timeline = plan_timeline(view.plan, most_rows=0 if wide else _ROWS)
    parts = [*_head(view, wide=wide)]
    parts += starmap(fact, file_facts(view.file, most=most))
    if timeline.rows:
        parts += picture(timeline, width=width)
    parts += starmap(fact, obstacles(view, most=most))
    if wide:
        parts += starmap(fact, _of_pods(ordered(view.plan.nodes), "evicted", "evicts", "", 0))
    return Group(*parts, *map(line, view.plan.remarks))


def plan_page(view: PlanView) -> RolloutPage:
    """Return what a page and a picture of a forecast tell."""
    at = "" if view.at is None else f" at {clock_time(view.at)} UTC"
    start = "when it goes on" if view.plan.stops else "then"
    return RolloutPage(
        title=_title(view),
        facts=(*summary(view), *stop_facts(view)),
        more_facts=tuple(file_facts(view.file, most=0)),
        timeline=plan_timeline(view.plan, most_rows=FILE_ROWS),
        in_the_way=tuple(obstacles(view, most=0)),
        heads=("Node", "Starts", "Ends", "At the latest", "Pods evicted", "Notes"),
        nodes=tuple(_cells(node) for node in ordered(view.plan.nodes)),
        times=3,
        remarks=view.plan.remarks,
        footer=f"Made by sluice plan{at}; all times count from {start}.",
    )


def plans_view(pools: PoolPlans) -> RenderableType:
    """Return what each pool's rollout takes and costs, and what stops or blocks it."""
    parts: list[RenderableType] = []
    for view in pools.plans:
        parts += _head(view, wide=False)
        parts += starmap(fact, obstacles(view, most=_IN_SHORT))
        parts += map(indented, view.plan.held)
        if not any(node.start_p50 is not None for node in view.plan.nodes):
            parts += map(indented, view.plan.remarks)
    return Group(*parts, line(_more_of_each(pools)))


def _more_of_each(pools: PoolPlans) -> str:
    """Return what shows more of a pool, and which times rest on no measurement."""
    assumed = [
        plan.pool
        for plan in (view.plan for view in pools.plans)
        if not plan.measured_nodes and any(node.start_p50 is not None for node in plan.nodes)
    ]
    if not assumed:
        return "`sluice plan POOL` shows its nodes."
    verb = "time of {} rests" if len(assumed) == 1 else "times of {} rest"
    names = verb.format(some(assumed))
    return f"The {names} on assumed durations: `sluice plan POOL` has them, and its nodes."


def _head(view: PlanView, *, wide: bool) -> Iterator[RenderableType]:
    (_, how_long), *costs = summary(view, wide=wide)
    yield heading(f"{_title(view)}: {how_long}")
    if costs:
        yield indented("; ".join(f"{name}: {text}" for name, text in costs))
    for stop in stop_facts(view):
        yield indented(_stop_line(*stop))


# Words, which every form of a plan has.


def _title(view: PlanView) -> str:
    given = f", with {view.file.file}" if view.file is not None else ""
    return f"{view.plan.pool} to {view.version or 'its driver'}{given}"


def _stop_line(state: str, text: str) -> str:
    return f"{state} {text}" if text.startswith("by ") else f"{state}: {text}"


def file_facts(file: PlannedFile | None, *, most: int) -> Iterator[tuple[str, str]]:
    """Yield what the plan takes from a file that is not applied yet, and what not.

    At most this many nodes, fields and objects are named, and the others counted; 0: all are.
    """
    if file is None:
        return
    unchanged = " is in the cluster as it is here, and" if file.changes_nothing else ""
    names = f": {_some(file.nodes, most and 3)}" if file.nodes else ""
    selected = f"selects {plural(len(file.nodes), 'node')}{names}"
    yield file.file, f"{file.policy}{unchanged} {selected}"
    moves = [
        f"{_some(names, most)} {verb if len(names) == 1 else verbs} the pool"
        for names, verb, verbs in (
            (file.joining, "joins", "join"),
            (file.leaving, "leaves", "leave"),
        )
        if names
    ]
    if file.driver_changes:
        changes = "; ".join(_listed(file.driver_changes, most))
        yield "the driver changes", changes
    for text in (*moves, *_listed(file.not_planned, most)):
        yield "not in this plan", text
    if file.left_out:
        yield "left out of the file", _some(file.left_out, most)


def _listed(texts: Sequence[str], most: int) -> Iterator[str]:
    yield from texts[: most or None]
    if most and len(texts) > most:
        yield f"{len(texts) - most} more, which -o wide names"


def obstacles(view: PlanView, *, most: int) -> Iterator[tuple[str, str]]:
    """Yield budgets that refuse evictions, nodes that do not move, and pods that are lost.

    Of each at most this many are named, and the others counted; 0: all are.
    """
    nodes = ordered(view.plan.nodes)
    blocked: dict[str, list[str]] = {}
    still: dict[str, list[PlannedNode]] = {}
    for node in nodes:
        for budget in node.blocked_by:
            blocked.setdefault(budget, []).append(node.node)
        wait = node.wait
        if node.start_p50 is None and wait is not None and wait.code is not WaitCode.POLICY_GONE:
            still.setdefault(_reason(wait), []).append(node)
    for budget, names in sorted(blocked.items()):
        yield f"disruption budget {budget} blocks", _some(names, most)
    displaced = "that fit on no other node now"
    yield from _of_pods(nodes, "without_place", "displaces", displaced, most)
    yield from _of_pods(nodes, "lost", "loses", "", most)
    for reason, stopped in still.items():
        names = [node.node for node in stopped]
        out = "is left out" if len(names) == 1 else "are left out"
        verb = out if is_left_out(stopped[0]) else "would not start"
        ended = _command(stopped, view)
        yield f"{_some(names, most)} {verb}", f"{reason}; {ended}" if ended else reason


def _reason(wait: WaitReason) -> str:
    """Return why a node does not start, and who can change that unless a command does.

    The code is left out where the words say as much.
    """
    is_said = wait.code in WAITS_OF_POOLS or wait.code is WaitCode.SKIPPED
    if _has_command(wait):
        return wait.detail
    who = people_of(wait.who)
    ended = f"; can be ended by {who}" if who else ""
    return f"{wait.detail if is_said else f'{wait.code.value}: {wait.detail}'}{ended}"


def _has_command(wait: WaitReason) -> bool:
    is_usual = wait.who == RESOLVED_BY.get(wait.code)
    return is_usual and wait.code in (WaitCode.HALTED, WaitCode.FAILED)


def _command(stopped: Sequence[PlannedNode], view: PlanView) -> str:
    """Return the command that would end the wait of these nodes; empty: none would."""
    wait, name = stopped[0].wait, stopped[0].node if len(stopped) == 1 else "NODE"
    if wait is None or not _has_command(wait):
        return ""
    if wait.code is WaitCode.HALTED:
        release = release_command(view.plan.pool, view.version)
        return f"then `{release}` accepts it, or another driver is set"
    return f"`sluice upgrade retry {name}` tries again, or another driver is set"


def _of_pods(
    nodes: Sequence[PlannedNode], field: str, verb: str, which: str, most: int
) -> Iterator[tuple[str, str]]:
    """Yield the pods of each node that are in this field, and how many more there are."""
    found = [(node.node, pods) for node in nodes if (pods := getattr(node, field))]
    for name, pods in found[: most or None]:
        yield f"{name} {verb} {plural(len(pods), 'pod')} {which}".rstrip(), _some(pods, most and 3)
    if most and len(found) > most:
        rest = sum(len(pods) for _, pods in found[most:])
        where = f"on {plural(len(found) - most, 'more node')}"
        yield f"{plural(rest, 'more pod')} {which}".rstrip(), f"{where}; -o wide names them"


def _some(names: Sequence[str], most: int) -> str:
    return some(names, most or len(names))


# Nodes in the table of a page.


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
