"""What a plan says beside its picture: what it takes and costs, and what has stopped it. Pure."""

from collections.abc import Iterator
from typing import Final

from libs.contracts.queries import PlanAnswer, PlanLimits, PlanStop, PlanStopKind
from libs.contracts.rollout import release_command
from libs.ctl.answers import PlanView
from libs.ctl.text import clock_time, duration, plural
from libs.fleet.pools import resume_command
from libs.rollout.plan_time import ASSUMED_JOB, brief, first_start, is_left_out, stop_words, takes

_DAY: Final = 86_400.0
_MINUTE: Final = 60.0
"""Of shorter rollouts the end has no time of day."""
_NOTABLE: Final = 0.25
"""The share from which on the pull of an image is told without `-o wide`."""


def summary(view: PlanView, *, wide: bool = True) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a rollout takes, and then of what it costs."""
    yield "takes, from the first start on", takes(view.plan)
    if any(node.start_p50 is not None for node in view.plan.nodes):
        if told := _ends(view):
            yield "ends", told
        yield from _costs(view.plan, wide=wide)
    if told := _limits(view):
        yield "limits", told
    if view.with_policy_limits is not None:
        yield "with the limits now", takes(view.with_policy_limits)
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


def _ending(stop: PlanStop, view: PlanView) -> str:
    pool = view.plan.pool
    match stop.kind:
        case PlanStopKind.HALTED:
            return f"`{release_command(pool, view.version, stop.failures)}` ends it"
        case PlanStopKind.PAUSED | PlanStopKind.FROZEN:
            return f"`{resume_command(pool)}` ends it"
        case PlanStopKind.AUTO_UPGRADE_OFF:
            return (
                "a node keeps its driver until its driver pod is deleted, or until the policy has"
                " `autoUpgrade: true`"
            )
        case _:
            return "times count from its end"


def _ends(view: PlanView) -> str:
    """Return the times of day at which the rollout ends; empty: they are near, or not known."""
    plan, at = view.plan, view.at
    if at is None or plan.stops or plan.makespan_p50 is None or plan.makespan_p50 < _MINUTE:
        return ""
    median = " (p50)" if plan.makespan_p95 is None else ""
    ends = [
        _clock(at + each, at) for each in (plan.makespan_p50, plan.makespan_p95) if each is not None
    ]
    (first, day), (last, last_day) = ends[0], ends[-1]
    if day != last_day:
        return f"{_day_name(day)} {first} to {_day_name(last_day)} {last} UTC"
    return f"{first if first == last else f'{first}-{last}'} UTC{day}{median}"


def _clock(end: float, now: float) -> tuple[str, str]:
    """Return a time of day to the minute, and its day if that is not today."""
    today, tomorrow, end_at = (
        clock_time(each + _MINUTE / 2).split() for each in (now, now + _DAY, end)
    )
    date, clock = end_at
    days = {today[0]: "", tomorrow[0]: " tomorrow"}
    return clock[:5], days.get(date, f" on {date}")


def _day_name(day: str) -> str:
    return day.removeprefix(" on").strip() or "today"


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
        yield "not usable", _not_usable(plan, wide=wide)
    yield "GPU-hours lost", _lost(plan, wide=wide)
    if evicted := sum(len(node.evicted) for node in plan.nodes):
        yield "pods evicted", f"{evicted}"


def _not_usable(plan: PlanAnswer, *, wide: bool) -> str:
    most = f"at worst {plan.largest_loss} of {plural(plan.pool_nodes, 'node')}"
    further = ""
    if plan.down is not None:
        most += f" ({plan.down.nodes} already)"
        further = "further "
    is_all = plan.down is not None and plan.down.nodes == plan.pool_nodes
    if plan.drained_seconds is None or is_all:
        return most
    pulling = round(plan.pulling_seconds or 0.0)
    is_told = pulling if wide else pulling > plan.drained_seconds * _NOTABLE
    image = f", {duration(pulling)} of it for the image" if is_told else ""
    return f"{most}, a {further}node for {duration(plan.drained_seconds)} (median{image})"


def _lost(plan: PlanAnswer, *, wide: bool) -> str:
    amount = gpu_hours(plan.gpu_hours_lost)
    # A node that waits for a job is cordoned meanwhile, so that the job's end decides the amount.
    if any(ASSUMED_JOB in each for each in plan.held):
        amount += ", if jobs end as assumed"
    if plan.down is not None:
        return f"{amount} from now on"
    return f"{amount}, busy or idle" if wide and amount != "0" else amount


def gpu_hours(hours: float) -> str:
    return "0" if hours < 0.005 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def limits_text(limits: PlanLimits) -> str:
    parallel = f", maxParallelUpgrades {limits.max_parallel}" if limits.max_parallel else ""
    return f"maxUnavailable {limits.max_unavailable}{parallel}"


def _outcome(plan: PlanAnswer) -> Iterator[str]:
    """Yield how many nodes are upgraded in the end, and how many of those that start are not."""
    moving = sum(node.start_p50 is not None for node in plan.nodes)
    upgraded = moving if plan.upgraded is None else plan.upgraded
    some = " not done" if plan.pool_nodes > len(plan.nodes) else ""
    yield f"{upgraded} of {plural(len(plan.nodes), 'node')}{some}"
    if plan.failing:
        yield f"{plan.failing} will probably fail"
    if (unknown := moving - upgraded - plan.failing) > 0:
        yield f"{unknown} without a known end"
