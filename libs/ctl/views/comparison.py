"""A rollout beside its plan: the error of the plan, and both times of each node. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from libs.contracts.waits import WaitCode
from libs.ctl.comparison import ComparedNode, Comparison
from libs.ctl.text import clock_time, duration, moment, plural, some
from libs.ctl.views.bars import picture
from libs.ctl.views.layout import fact, heading
from libs.ctl.views.plan_summary import gpu_hours, limits_text
from libs.ctl.views.timeline import (
    FILE_ROWS,
    RolloutPage,
    Row,
    Span,
    Timeline,
    row_name,
    shared_rows,
)
from libs.rollout.plan_time import PlanTime, brief

_ROWS: Final = 40
_WAITED: Final[Mapping[WaitCode, tuple[str, str]]] = {
    WaitCode.JOBS: ("waited for jobs", "waited for jobs"),
    WaitCode.PDB: ("waited for a disruption budget", "waited for disruption budgets"),
    WaitCode.PAUSED: ("was paused", "were paused"),
    WaitCode.FROZEN: ("was frozen", "were frozen"),
    WaitCode.HALTED: ("waited for the end of a halt", "waited for the end of a halt"),
    WaitCode.SKIPPED: ("was kept out by people", "were kept out by people"),
    WaitCode.NOT_READY: ("was not Ready", "were not Ready"),
}
"""What one node did, and several, by the code of the wait."""
_NONE_BEFORE: Final = (
    "none was asked for before it began; ask with `sluice plan` before the next one"
)


def comparison_view(comparison: Comparison, *, width: int, wide: bool = False) -> RenderableType:
    """Return the error of the plan, and a bar of each node as planned and as it happened."""
    parts: list[RenderableType] = [heading(_title(comparison))]
    parts += (fact(name, text) for name, text in _summary(comparison))
    timeline = comparison_timeline(comparison, most_rows=0 if wide else _ROWS)
    if timeline.rows:
        parts += [Text(""), *picture(timeline, width=width)]
    return Group(*parts)


def comparison_page(comparison: Comparison) -> RolloutPage:
    """Return what a page and a picture of both tell."""
    began = clock_time(comparison.began)
    return RolloutPage(
        title=_title(comparison),
        facts=tuple(_summary(comparison)),
        timeline=comparison_timeline(comparison, most_rows=FILE_ROWS),
        heads=("Node", "Planned start", "Started", "Planned end", "Ended", "Later by", "Result"),
        nodes=tuple(map(_cells, comparison.nodes)),
        times=5,
        footer=f"Times count from {began} UTC, when the first node started.",
    )


def comparison_timeline(comparison: Comparison, *, most_rows: int) -> Timeline:
    """Return the picture of both, in which nodes share rows if there are too many."""
    nodes = [node for node in comparison.nodes if _is_drawn(node)]
    rows = tuple(_rows(nodes, most_rows, so_far=comparison.makespan))
    ends = (span.end for row in rows for span in row.spans)
    return Timeline(
        rows=rows,
        seconds=max([comparison.planned_makespan or 0.0, *ends, 1.0]),
        origin="start",
    )


def _is_drawn(node: ComparedNode) -> bool:
    """Return whether a bar shows it: a node that followed after days would leave no room."""
    return node.planned_start is not None or (node.start is not None and not node.follows)


def _rows(nodes: Sequence[ComparedNode], most: int, *, so_far: float) -> Iterator[Row]:
    for together in shared_rows(nodes, most):
        moves = [(each.start, each.end) for each in together if not each.follows]
        yield Row(
            name=row_name([each.node for each in together]),
            nodes=len(together),
            plan=_joined([(each.planned_start, each.planned_end) for each in together]),
            happened=_joined(moves, so_far=so_far),
        )


def _joined(
    times: Sequence[tuple[float | None, float | None]], *, so_far: float = 0.0
) -> Span | None:
    """Return the time in which any of these is; one without an end goes on at least so far."""
    starts = [start for start, _ in times if start is not None]
    if not starts:
        return None
    ends = [end for _, end in times if end is not None]
    is_open = any(start is not None and end is None for start, end in times)
    last = max([*ends, *starts, so_far if is_open else 0.0])
    return Span(min(starts), last, last, is_open=is_open)


def _title(comparison: Comparison) -> str:
    return f"{comparison.pool} to {comparison.version or comparison.target}: plan and rollout"


def _summary(comparison: Comparison) -> Iterator[tuple[str, str]]:
    yield "began", f"{clock_time(comparison.began)} UTC"
    yield "upgraded", ", ".join(_outcome(comparison))
    if followed := _followers(comparison):
        yield "followed", followed
    word = "took" if comparison.complete else "has taken so far"
    yield word, brief(comparison.makespan)
    if ended := [node for node in comparison.nodes if node.end is not None]:
        each = duration(comparison.node_seconds / len(ended))
        added = duration(comparison.node_seconds)
        yield "unavailable", f"a node for {each} from start to end (mean), {added} added up"
    if told := _lost(comparison):
        yield "GPU-hours lost", told
    yield "pods evicted", f"{comparison.evicted}"
    if told := list(unplanned(comparison)):
        yield "unplanned", "; ".join(told)
    if comparison.planned_at is None:
        yield "plan", _NONE_BEFORE
        return
    planned = PlanTime(comparison.planned_makespan, comparison.planned_makespan_p95)
    yield "was planned to take", str(planned)
    yield "planned at", f"{clock_time(comparison.planned_at)} UTC{_limits(comparison)}"
    others = [
        node.node for node in comparison.nodes if node.planned_start is None and _is_drawn(node)
    ]
    if others:
        yield "not in the plan", f"{some(others)}: not expected to start then"
    if comparison.complete:
        yield "error of the plan", _error(comparison)


def _lost(comparison: Comparison) -> str:
    """Return the GPU-hours that were lost, or why they are not known; empty: not yet."""
    lost, planned = comparison.gpu_hours, comparison.planned_gpu_hours
    if lost is None:
        if not comparison.complete or not comparison.without_gpus:
            return ""
        if comparison.planned_at is None:
            return "not known without a plan"
        return f"not known: the plan had no GPUs of {some(comparison.without_gpus)}"
    told = gpu_hours(lost)
    if planned is not None:
        told += f", planned {gpu_hours(planned)}"
    if away := comparison.away_before:
        told += f", without {some(away)}: {'was' if len(away) == 1 else 'were'} not usable before"
    return told


def _outcome(comparison: Comparison) -> Iterator[str]:
    """Yield how many nodes are upgraded, and what became of the others."""
    nodes = comparison.nodes
    failed = sum(node.failed for node in nodes)
    done = sum(node.end is not None for node in nodes) - failed
    started = sum(node.start is not None for node in nodes)
    kept_out = sum(node.is_kept_out for node in nodes)
    yet = "" if comparison.complete else " yet"
    going_on = " yet" if any(node.follows and node.end is None for node in nodes) else yet
    yield f"{done} of {plural(len(nodes), 'node')}"
    for number, what in (
        (failed, "failed"),
        (started - done - failed, f"not ended{going_on}"),
        (kept_out, "kept out by people"),
        (len(nodes) - started - kept_out, f"not started{yet}"),
    ):
        if number:
            yield f"{number} {what}"


def _followers(comparison: Comparison) -> str:
    """Return when nodes were upgraded that the rollout was complete without; empty: none was."""
    nodes = [node for node in comparison.nodes if node.follows]
    starts = [comparison.began + node.start for node in nodes if node.start is not None]
    ends = [comparison.began + node.end for node in nodes if node.end is not None]
    if not starts:
        return ""
    told = f"{some(node.node for node in nodes)}: kept out before, from {clock_time(min(starts))}"
    if len(ends) < len(starts):
        return f"{told} UTC on"
    return f"{told} to {moment(max(ends), min(starts)).removesuffix('Z')} UTC"


def _limits(comparison: Comparison) -> str:
    """Return by which limits it was planned, and the policy's if they were others."""
    planned, policy = comparison.planned_limits, comparison.policy_limits
    if planned is None:
        return ""
    other = "" if policy in (None, planned) else f"; the policy had {limits_text(policy)}"
    return f", with {limits_text(planned)}{other}"


def _error(comparison: Comparison) -> str:
    planned, error = comparison.planned_makespan, comparison.error
    if planned is None:
        return "not judged: the plan had no end"
    if comparison.was_disturbed:
        return "not judged, because of what was unplanned"
    if error is None:
        return f"not judged: {brief(planned)} is too short to judge by"
    if error >= 1:
        return f"it took {error + 1:.1f} times as long as the planned {brief(planned)}"
    if not (share := round(abs(error) * 100)):
        return f"none: it took the planned {brief(planned)}"
    word = f"{share}% longer" if error > 0 else f"{min(share, 99)}% less"
    return f"it took {word} than the planned {brief(planned)}"


def unplanned(comparison: Comparison) -> Iterator[str]:
    """Yield what no plan could know: retries, and waits for jobs, people and machines.

    A wait that goes on has lasted so far.
    """
    nodes = [node for node in comparison.nodes if node.is_unplanned]
    retried = [node.node for node in nodes if node.retries]
    if retried:
        verb = "was" if len(retried) == 1 else "were"
        yield f"{some(retried)} failed and {verb} tried again"
    for code, (one, several) in _WAITED.items():
        waits = {node.node: node.waited[code] for node in nodes if code in node.waited}
        far = " so far" if any(node.waits_for == code for node in nodes) else ""
        if len(waits) > 1:
            yield f"{some(waits)} {several} for up to {duration(max(waits.values()))}{far}"
        for name, seconds in waits.items() if len(waits) == 1 else ():
            yield f"{name} {one} for {duration(seconds)}{far}"


def _cells(node: ComparedNode) -> tuple[str, ...]:
    times = (node.planned_start, node.start, node.planned_end, node.end)
    later = ""
    if node.end is not None and node.planned_end is not None:
        difference = node.end - node.planned_end
        later = f"{'-' if difference < 0 else ''}{duration(abs(difference))}"
    result = "failed" if node.failed else "done" if node.end is not None else "not ended"
    if node.start is None:
        result = "kept out" if node.is_kept_out else "not started"
    shown = ("" if each is None else duration(each) for each in times)
    return (node.node, *shown, later, result)
