"""A forecast: when each node starts and ends, as bars, and what the rollout costs. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from libs.contracts.node import WaitCode
from libs.contracts.queries import PlannedNode
from libs.ctl.answers import PlanView
from libs.ctl.text import clock_time, duration, plural, printable
from libs.ctl.views.layout import fact, heading, line

_LIKELY: Final = "█"
_LATE: Final = "░"
_LEAST_BAR: Final = 10
_ORDER: Final = float("inf")


def plan_view(view: PlanView, *, width: int, wide: bool = False) -> RenderableType:
    """Return the makespan, the costs, a bar for each node, and what stands in the way."""
    plan = view.plan
    nodes = sorted(plan.nodes, key=lambda each: (_known(each.start_p50), each.node))
    parts: list[RenderableType] = [heading(f"{plan.pool} to {view.version or 'its driver'}")]
    parts += _summary(view)
    moving = [node for node in nodes if node.start_p50 is not None]
    if moving:
        parts += [Text(""), *_bars(moving, scale=_scale(view), width=width)]
        parts.append(line(f"{_LIKELY} likely (p50)  {_LATE} at the latest (p95)", "dim"))
    parts += _obstacles(nodes, wide=wide)
    if plan.remarks:
        parts += [Text(""), *map(line, plan.remarks)]
    return Group(*parts)


def _known(seconds: float | None) -> float:
    return _ORDER if seconds is None else seconds


def _summary(view: PlanView) -> Iterator[RenderableType]:
    plan = view.plan
    moving = sum(node.start_p50 is not None for node in plan.nodes)
    yield fact("nodes", f"{moving} of {len(plan.nodes)} are upgraded")
    if plan.makespan_p50 is None:
        yield fact("ends", "not, as things are" if plan.nodes else "there is nothing to do")
    else:
        late = "" if plan.makespan_p95 is None else f", at the latest {duration(plan.makespan_p95)}"
        yield fact("takes", f"{duration(plan.makespan_p50)}{late} (p50, p95)")
    yield fact("GPU-hours lost", f"{plan.gpu_hours_lost:.1f}")
    if plan.drained_seconds is not None:
        pulling = duration(plan.pulling_seconds or 0.0)
        text = f"{duration(plan.drained_seconds)}, of which {pulling} pulling the driver's image"
        yield fact("a node is drained for", text)
    evicted = sum(len(node.evicted) for node in plan.nodes)
    lost = sum(len(node.lost) for node in plan.nodes)
    if evicted:
        gone = f", {lost} of them not replaced" if lost else ""
        yield fact("pods", f"{evicted} evicted{gone}")
    if view.finish_by is not None:
        needed = plan.needed_max_unavailable
        text = "cannot be met with any limit" if needed is None else f"maxUnavailable {needed}"
        yield fact(f"needed to end by {clock_time(view.finish_by)} UTC", text)


def _scale(view: PlanView) -> float:
    """Return the seconds that the bars' full width stands for."""
    ends = (_end(node) for node in view.plan.nodes)
    return max([view.plan.makespan_p95 or view.plan.makespan_p50 or 0.0, *ends, 1.0])


def _end(node: PlannedNode) -> float:
    return node.end_p95 or node.end_p50 or node.start_p95 or node.start_p50 or 0.0


def _bars(nodes: Sequence[PlannedNode], *, scale: float, width: int) -> Iterator[RenderableType]:
    texts = [(printable(node.node), _times(node), node) for node in nodes]
    names = max(cell_len(name) for name, _, _ in texts)
    times = max(cell_len(text) for _, text, _ in texts)
    cells = width - names - times - 4
    if cells >= _LEAST_BAR:
        for name, text, node in texts:
            drawn = bar(node, scale=scale, cells=cells)
            pad = " " * (names - cell_len(name))
            yield Text(f"{name}{pad}  {drawn:<{cells}}  {text:>{times}}", no_wrap=True)
        return
    for name, text, node in texts:
        yield Text(name, style="bold", overflow="fold")
        yield Text(f"  {text}", overflow="fold")
        yield Text(f"  {bar(node, scale=scale, cells=width - 2)}".rstrip(), no_wrap=True)


def _times(node: PlannedNode) -> str:
    end = "?" if node.end_p50 is None else duration(node.end_p50)
    return f"{duration(node.start_p50)} to {end}"


def bar(node: PlannedNode, *, scale: float, cells: int) -> str:
    """Return a node's time as a bar: from its likely start to its likely and to its latest end."""
    start = node.start_p50 or 0.0
    end = start if node.end_p50 is None else node.end_p50
    late = max(end, node.end_p95 or end)
    first, middle, last = (round(cells * min(each, scale) / scale) for each in (start, end, late))
    first = min(first, cells - 1)
    likely = max(1, middle - first)
    return " " * first + _LIKELY * likely + _LATE * max(0, last - first - likely)


def _obstacles(nodes: Sequence[PlannedNode], *, wide: bool) -> Iterator[RenderableType]:
    """Yield budgets that refuse evictions, nodes that do not move, and pods that are lost."""
    blocked: dict[str, list[str]] = {}
    for node in nodes:
        for budget in node.blocked_by:
            blocked.setdefault(budget, []).append(node.node)
    for budget, names in sorted(blocked.items()):
        yield fact(f"disruption budget {budget} blocks", ", ".join(names))
    for node in nodes:
        if node.start_p50 is None and node.wait is not None:
            is_known = node.wait.code is WaitCode.SKIPPED and node.wait.who
            who = f"; ended by {node.wait.who}" if is_known else ""
            text = f"{node.wait.code.value}: {node.wait.detail}{who}"
            yield fact(f"{node.node} does not start", text)
        if node.lost:
            shown = node.lost if wide else node.lost[:3]
            more = (
                "" if len(shown) == len(node.lost) else f" and {len(node.lost) - len(shown)} more"
            )
            yield fact(
                f"{node.node} loses {plural(len(node.lost), 'pod')}", f"{', '.join(shown)}{more}"
            )
