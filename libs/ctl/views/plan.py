"""A forecast in the terminal: each node's time as a bar, the capacity, what it costs. Pure."""

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Final

from rich.console import Group, RenderableType

from libs.contracts.node import WaitCode
from libs.contracts.queries import (
    PlanAnswer,
    PlanLimits,
    PlannedNode,
    PlanStop,
    PlanStopKind,
    WaitReason,
)
from libs.ctl.answers import PlannedFile, PlanView
from libs.ctl.text import clock_time, duration, plural
from libs.ctl.views.bars import picture
from libs.ctl.views.layout import fact, heading, indented, line
from libs.ctl.views.timeline import ordered, plan_timeline
from libs.rollout.plan_time import brief, first_start, is_left_out, stop_words, takes
from libs.rollout.wait_reasons import (
    NO_ACTION_NEEDED,
    OF_POOLS,
    RESOLVED_BY,
    resolver_if_it_lasts,
)

_ROWS: Final = 40
"""Rows of bars, in which nodes are together if there are more; with `-o wide` each has its own."""
_MINUTE: Final = 60.0
"""Of shorter rollouts the end has no time of day."""
_NOTABLE: Final = 0.25
"""The share from which on the pull of an image is told without `-o wide`."""
NAMED: Final = 10
"""Nodes that are named in a sentence."""


def plan_view(view: PlanView, *, width: int, wide: bool = False) -> RenderableType:
    """Return how long it takes, the costs, a bar for each node, and what stands in the way.

    A plan of a dozen nodes is to stay on a screen of 24 lines.
    """
    most = 0 if wide else NAMED
    timeline = plan_timeline(view.plan, most_rows=0 if wide else _ROWS)
    (_, how_long), *costs = summary(view, wide=wide)
    parts: list[RenderableType] = [heading(f"{plan_title(view)}: {how_long}")]
    if costs:
        parts.append(indented("; ".join(f"{name}: {text}" for name, text in costs)))
    parts += (indented(_stop_line(*stop)) for stop in stop_facts(view))
    parts += starmap(fact, file_facts(view.file, most=most))
    if timeline.rows:
        parts += picture(timeline, width=width)
    parts += starmap(fact, obstacles(view, most=most))
    if wide:
        parts += starmap(fact, _of_pods(ordered(view.plan.nodes), "evicted", "evicts", "", 0))
    return Group(*parts, *map(line, view.plan.remarks))


# Words, which every picture of a plan has.


def plan_title(view: PlanView) -> str:
    given = f", with {view.file.file}" if view.file is not None else ""
    return f"{view.plan.pool} to {view.version or 'its driver'}{given}"


def summary(view: PlanView, *, wide: bool = True) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a rollout takes, and then of what it costs."""
    yield "takes, from the first start on", takes(view.plan)
    if any(node.start_p50 is not None for node in view.plan.nodes):
        if told := _ends(view):
            yield "ends", told
        yield from _costs(view.plan, wide=wide)
    if told := _limits(view):
        yield "limits", told
    if view.finish_by is not None and not all(map(is_left_out, view.plan.nodes)):
        needed = view.plan.needed_max_unavailable
        text = "none is enough" if needed is None else f"maxUnavailable {needed}"
        now = " if it goes on now" if view.plan.stops else ""
        yield f"smallest limit to end by {clock_time(view.finish_by)} UTC{now}", text


def stop_facts(view: PlanView) -> Iterator[tuple[str, str]]:
    """Yield each state in which no node starts now: who stopped the pool, why, and what ends it."""
    for stop in view.plan.stops:
        if stop.kind is PlanStopKind.POLICY_DELETED:  # that is all there is to say
            continue
        because = f"{stop.because}; " if stop.because else ""
        yield stop_words(stop)[0], f"{because}{_ending(stop, view)}"


def _stop_line(state: str, text: str) -> str:
    return f"{state} {text}" if text.startswith("by ") else f"{state}: {text}"


def _ending(stop: PlanStop, view: PlanView) -> str:
    pool = view.plan.pool
    match stop.kind:
        case PlanStopKind.HALTED:
            accept = f"{view.version} --failures {stop.failures} --pool {pool}"
            return f"`sluice upgrade release {accept}` ends it"
        case PlanStopKind.PAUSED | PlanStopKind.FROZEN:
            return f"`sluice upgrade resume {pool}` ends it"
        case PlanStopKind.AUTO_UPGRADE_OFF:
            return "a node keeps its driver until somebody deletes its driver pod"
        case _:
            return "times count from its end"


def _ends(view: PlanView) -> str:
    """Return the times of day at which the rollout ends; empty: they are near, or not known."""
    plan, at = view.plan, view.at
    if at is None or plan.stops or plan.makespan_p50 is None or plan.makespan_p50 < _MINUTE:
        return ""
    ends = {_clock(at + each, at): None for each in (plan.makespan_p50, plan.makespan_p95) if each}
    return f"{'-'.join(ends)} UTC{' (p50)' if plan.makespan_p95 is None else ''}"


def _clock(end: float, now: float) -> str:
    """Return a time of day to the minute, with its date if that is not today's."""
    (today, _), (date, clock) = (clock_time(each + _MINUTE / 2).split() for each in (now, end))
    return clock[:5] if date == today else f"{date} {clock[:5]}"


def _limits(view: PlanView) -> str:
    """Return the limits of the plan where they were asked for, beside the policy's."""
    planned, policy = view.plan.limits, view.plan.policy_limits
    if planned is None or policy is None:
        return ""
    if not (view.limits_given or view.file) and planned == policy:
        return ""
    told = [_changed("maxUnavailable", planned.max_unavailable, policy.max_unavailable)]
    if planned.max_parallel or policy.max_parallel:
        both = (f"{each.max_parallel or 'unlimited'}" for each in (planned, policy))
        told.append(_changed("maxParallelUpgrades", *both))
    return ", ".join(told)


def _changed(name: str, planned: str, policy: str) -> str:
    return f"{name} {planned} ({'as now' if planned == policy else f'now {policy}'})"


def _costs(plan: PlanAnswer, *, wide: bool) -> Iterator[tuple[str, str]]:
    yield "upgraded", ", ".join(_outcome(plan))
    if first := round(first_start(node.start_p50 for node in plan.nodes)):
        yield "first start", f"{brief(first)} later" if plan.stops else f"in {brief(first)}"
    if plan.largest_loss and plan.pool_nodes:
        yield "unavailable", _unavailable(plan, wide=wide)
    yield "GPU-hours lost", _lost(plan, wide=wide)
    if evicted := sum(len(node.evicted) for node in plan.nodes):
        yield "pods evicted", f"{evicted}"


def _unavailable(plan: PlanAnswer, *, wide: bool) -> str:
    most = f"at most {plan.largest_loss} of {plan.pool_nodes}"
    if plan.drained_seconds is None:
        return most
    pulling = round(plan.pulling_seconds or 0.0)
    is_told = pulling if wide else pulling > plan.drained_seconds * _NOTABLE
    image = f", {duration(pulling)} of it for the image" if is_told else ""
    return f"{most}, a node for {duration(plan.drained_seconds)} (median{image})"


def _lost(plan: PlanAnswer, *, wide: bool) -> str:
    amount, down = gpu_hours(plan.gpu_hours_lost), _down_already(plan)
    if down:
        return f"{amount} more ({down} down already)"
    return f"{amount}, busy or idle" if wide and amount != "0" else amount


def gpu_hours(hours: float) -> str:
    return "0" if hours < 0.005 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def limits_text(limits: PlanLimits) -> str:
    parallel = f", maxParallelUpgrades {limits.max_parallel}" if limits.max_parallel else ""
    return f"maxUnavailable {limits.max_unavailable}{parallel}"


def _down_already(plan: PlanAnswer) -> str:
    """Return what is unavailable when the plan is made; empty: nothing is."""
    if (down := plan.down) is None:
        return ""
    number, unit = (down.gpus, "GPU") if plan.pool_gpus else (down.nodes, "node")
    return f"{plural(number, unit)} {'is' if number == 1 else 'are'}"


def _outcome(plan: PlanAnswer) -> Iterator[str]:
    """Yield how many nodes are upgraded in the end, and how many of those that start are not."""
    moving = sum(node.start_p50 is not None for node in plan.nodes)
    upgraded = moving if plan.upgraded is None else plan.upgraded
    yield f"{upgraded} of {plural(len(plan.nodes), 'node')}"
    if plan.failing:
        yield f"{plan.failing} will probably fail"
    if (unknown := moving - upgraded - plan.failing) > 0:
        yield f"{unknown} without a known end"


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
    is_said = wait.code in OF_POOLS or wait.code is WaitCode.SKIPPED
    if _has_command(wait):
        return wait.detail
    who = resolver_if_it_lasts(wait.who) or wait.who.removeprefix(f"{NO_ACTION_NEEDED}; ")
    ended = f"; can be ended by {who}" if who not in ("", NO_ACTION_NEEDED) else ""
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
        release = f"sluice upgrade release {view.version} --pool {view.plan.pool}"
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
    shown = names[:most] if most else names
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
