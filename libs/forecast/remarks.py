"""Describe a plan in sentences that a person can act on."""

from collections import defaultdict
from collections.abc import Sequence
from math import inf

from libs.contracts.node import WaitCode
from libs.forecast.history import NOTHING, History
from libs.forecast.options import pause_reason
from libs.forecast.pods import PodEffects
from libs.forecast.rollout_plan import NodeForecast, Percentiles, RolloutPlan
from libs.forecast.seeded_world import FleetProfile, Lognormal
from libs.rollout.limits import stale_source
from libs.rollout.node_writes import current_record
from libs.rollout.pool import contribution
from libs.rollout.views.fleet import Fleet, Instant

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_ENOUGH_PLAYS = 10
"""Minimum number of plays to distinguish chance from a cause."""
_PREDICTING_PLAYS = 19
"""Minimum number of plays of which one is a 95 % figure."""


def remarks(
    plan: RolloutPlan,
    fleet: Fleet,
    played_fleet: Fleet,
    now: Instant,
    *,
    history: History = NOTHING,
) -> tuple[str, ...]:
    """Return all remarks, the most important first."""
    if not plan.nodes:
        lines = ["Every node is already up to date: there is nothing to do."]
    else:
        lines = _unmoved(plan, played_fleet)
    if reason := pause_reason(fleet.pools[plan.pool]):
        lines.append(f"The pool is paused ({reason}): times count from the end of the pause.")
    lines += _unknown_ends(plan)
    lines += _proof(plan)
    lines += _failures(plan)
    lines += _capacity(plan, played_fleet)
    lines += _pods(plan, played_fleet)
    lines += _required_limits(plan)
    if source := stale_source(now):
        lines.append(f"{source} is out of date: the rollout may begin differently.")
    if now.visibility.bus_down_since is not None:
        lines.append("NATS is unreachable: the plan starts when it is back.")
    return (*lines, _number_of_plays(plan), *_seen(history), *_assumptions(history))


# Nodes that do not start or do not end.


def _unmoved(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    unmoved = [node for node in plan.nodes if node.start.p50 is None and node.end.p50 is None]
    names_by_reason: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node in unmoved:
        if node.wait is not None:
            names_by_reason[node.wait.code.value, _reason(node)].append(node.node)
    lines = [
        f"{format_count(len(names), 'node')} will not start ({code}):"
        f" {format_names(names)}: {reason}."
        for (code, reason), names in sorted(
            names_by_reason.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]
    if fleet.pools[plan.pool].upgrade.max_unavailable in (0, "0", "0%"):
        moving = format_count(len(plan.nodes) - len(unmoved), "node")
        text = "maxUnavailable is 0: no available node is started."
        lines.insert(0, f"{text} Already unavailable nodes ({moving}) can still start.")
    return lines


def _reason(node: NodeForecast) -> str:
    wait = node.wait
    if wait is None:
        return ""
    return f"{wait.detail.rstrip('.')} (can be ended by {wait.who})" if wait.who else wait.detail


def _unknown_ends(plan: RolloutPlan) -> list[str]:
    lines = [
        f"The end of {node.node} is unknown ({node.wait.code.value}): {_reason(node)}."
        for node in plan.nodes
        if node.start.p50 is not None and node.end.p50 is None and node.wait is not None
        if node.wait.code is not WaitCode.FAILED
    ]
    more = format_count(len(lines) - 3, "more node")
    return lines[:3] + ([f"The end of {more} is unknown too."] if len(lines) > 3 else [])


# The course of the rollout.


def _proof(plan: RolloutPlan) -> list[str]:
    proof = plan.proof
    if proof is None:
        return []
    nodes = format_count(proof.threshold, "node")
    have = "has" if proof.threshold == 1 else "have"
    phase = f"Until {nodes} {have} proven the driver, only a few nodes start at a time"
    lines = [f"{phase}: that takes {_about(proof.after)}."]
    if proof.delay is not None:
        delay = proof.delay
        how_long = "forever" if delay.seconds == inf else f"for {format_duration(delay.seconds)}"
        lines.append(f"{delay.node} delays the proof {how_long}: {delay.detail}.")
    return lines


def _about(time: Percentiles) -> str:
    if time.p95 is None:
        return f"{format_duration(time.p50)}, and may never end"
    return f"{format_duration(time.p50)} (95 %: {format_duration(time.p95)})"


def _failures(plan: RolloutPlan) -> list[str]:
    lines: list[str] = []
    if plan.halted_plays:
        lines.append(
            f"In {plan.halted_plays} of {plan.plays} plays the driver is halted because of"
            " failures, and the remaining nodes wait for a person"
            + (": the times are those of the other plays." if _are_few(plan) else ".")
        )
    failing = [node.node for node in plan.nodes if _will_fail(node, plan.plays)]
    if failing:
        lines.append(
            f"{format_count(len(failing), 'node')} will probably fail and stay cordoned:"
            f" {format_names(failing)}."
        )
    by_chance = sum(node.failed_plays for node in plan.nodes) / plan.plays - len(failing)
    if by_chance >= 1:
        lines.append(f"About {format_count(round(by_chance), 'node')} will fail by chance.")
    return lines


def _are_few(plan: RolloutPlan) -> bool:
    return 2 * plan.halted_plays < plan.plays


def _will_fail(node: NodeForecast, plays: int) -> bool:
    """Return whether the node probably fails; with few plays, only if a cause is known."""
    return 2 * node.failed_plays > plays and (plays >= _ENOUGH_PLAYS or bool(node.blocked_by))


def _capacity(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    if not plan.nodes:
        return []
    members = [node for node in fleet.nodes.values() if node.pool == plan.pool]
    already = sum(
        bool(contribution.unavailable_reason(node, current_record(node))) for node in members
    )
    loss = plan.loss
    text = (
        f"At most {loss.nodes} of {format_count(len(members), 'node')} are unavailable at one"
        f" time, with {format_count(loss.gpus, 'GPU')}, {format_duration(loss.at)} from now"
    )
    return [
        f"{text}; {already} of them {_is(already)} unavailable already." if already else f"{text}.",
        (
            f"{plan.gpu_hours_lost:.1f} GPU-hours are lost on unavailable nodes, without the work"
            " that evicted jobs have to repeat."
        ),
    ]


def _pods(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    lines: list[str] = []
    evicted = sum(len(node.evicted) for node in plan.nodes)
    if evicted:
        lines.append(f"{format_count(evicted, 'pod')} will be evicted.")
    lost = [pod for node in plan.nodes for pod in node.lost_pods]
    if lost:
        lines.append(f"{format_count(len(lost), 'pod')} will lose something: {format_names(lost)}.")
    blocked = sorted({name for node in plan.nodes for name in node.blocked_by})
    if blocked:
        lines.append(
            f"{format_count(len(blocked), 'disruption budget')} would refuse evictions now:"
            f" {format_names(blocked)}."
        )
    unseen = PodEffects(fleet).unwatched_nodes
    if unseen:
        lines.append(
            f"The pods of {format_count(unseen, 'node')} could not be listed: only those with GPUs"
            " are known, by uid, without their jobs and disruption budgets."
        )
    return lines


def _required_limits(plan: RolloutPlan) -> list[str]:
    limits = plan.required_limits
    if limits is None:
        return []
    if limits.max_unavailable is None:
        return [f"No maxUnavailable is known to finish in time: {limits.why}."]
    return [f"To finish in time, set maxUnavailable to {limits.max_unavailable}: {limits.why}."]


def _number_of_plays(plan: RolloutPlan) -> str:
    plays = format_count(plan.plays, "play")
    text = f"Based on {plays} of this rollout with different random outcomes"
    if plan.plays >= _PREDICTING_PLAYS:
        return f"{text}."
    return f"{text}; the 95 % figure of a node is the worst of them."


def _seen(history: History) -> list[str]:
    """Describe the durations that were measured in this fleet."""
    parts = (
        ("a driver restarts", history.restart),
        ("a validation", history.validation),
        ("a pull of the driver's image", history.pull),
        ("pods and devices leave", history.eviction),
    )
    durations = "; ".join(
        f"{label} {format_duration(each.quantile(0.5))}"
        f" (95 %: {format_duration(each.quantile(0.95))})"
        for label, each in parts
        if each is not None
    )
    if not durations:
        return []
    nodes = format_count(history.nodes, "node")
    what = "bring-ups" if history.brought_up else "last upgrades"
    return [f"As the {what} of {nodes} of this pool took: {durations}."]


def _assumptions(history: History) -> tuple[str, str]:
    """Describe the assumed durations and failure rates."""
    durations = "; ".join(
        f"{label} {format_duration(span.quantile(0.5))} (95 %: {format_duration(span.p95)})"
        for label, span, is_seen in _labelled(FleetProfile(), history)
        if not is_seen
    )
    return (
        f"Assumed, not seen in this fleet: {durations}.",
        "How often things go wrong is assumed, whatever was seen.",
    )


def _labelled(profile: FleetProfile, history: History) -> tuple[tuple[str, Lognormal, bool], ...]:
    """Return what takes how long, and whether that was seen in this fleet."""
    restart, validation, eviction, pull = (
        each is not None
        for each in (history.restart, history.validation, history.eviction, history.pull)
    )
    return (
        ("a driver loads", profile.load, restart),
        ("a validation", profile.validation, validation),
        ("an unload", profile.unload, restart),
        ("a pull of the driver's image", profile.pull, pull),
        ("a pod ends", profile.stop, eviction),
        ("a job", profile.job, False),
        ("a disruption budget refuses", profile.refusal, False),
    )


# Numbers and names.


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def format_duration(seconds: float | None) -> str:
    """Format a duration; None: unknown."""
    if seconds is None:
        return "an unknown time"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        hours, rest = divmod(round(seconds / _MINUTE), 60)
        return f"{hours} h {rest:02d} min"
    return f"{seconds / _DAY:.1f} days"


def format_count(number: int, what: str) -> str:
    """Format a count: `1 node`, `2 nodes`."""
    return f"{number} {what if number == 1 else what + 's'}"


def format_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
