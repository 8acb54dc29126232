"""Describe what a plan's figures do not show, in sentences that a person can act on."""

from math import inf

from libs.contracts.queries import PlanAnswer, PlanStopKind, WaitReason
from libs.contracts.rollout import RolloutPhase, RolloutStatus
from libs.contracts.waits import WaitCode, people_of
from libs.contracts.words import first_few, format_duration, plural
from libs.forecast.crashes import crash_remarks
from libs.forecast.forecast import Forecast
from libs.forecast.history import NOTHING, History
from libs.forecast.job_lengths import NO_JOBS, LearnedJobs
from libs.forecast.planned_waits import ALREADY
from libs.forecast.play_result import unavailable_reason
from libs.forecast.pods import PodEffects
from libs.forecast.seeded_world import FleetProfile, Lognormal
from libs.rollout.limits import stale_source
from libs.rollout.persons_lease import left_out_reason
from libs.rollout.pool.conditions import NO_NODES
from libs.rollout.views.fleet import Fleet, Instant

_MEDIAN, _LATE = 0.5, 0.95
_OPEN = {
    RolloutPhase.PROVING: "is under way",
    RolloutPhase.PROVEN: "is under way",
    RolloutPhase.HALTED: "is halted",
}
"""What is said of a rollout that has not ended."""
_PREDICTING_PLAYS = 19
"""Minimum number of plays of which one is a 95 % figure."""


def remarks(
    forecast: Forecast,
    fleet: Fleet,
    played_fleet: Fleet,
    now: Instant,
    *,
    history: History = NOTHING,
    jobs: LearnedJobs = NO_JOBS,
) -> tuple[str, ...]:
    """Return all remarks, the most important first."""
    plan = forecast.answer
    lines = [*_starts(plan, played_fleet), *_under_way(plan, fleet)]
    lines += _halted(plan)
    lines += _unseen_driver(plan, fleet, played_fleet)
    lines += crash_remarks(played_fleet.nodes.values())
    lines += _unknown_ends(plan)
    lines += plan.held
    lines += _proof(forecast)
    lines += _failures(forecast)
    moves = any(node.start_p50 is not None for node in plan.nodes)
    if moves:
        lines += _unavailable(plan, played_fleet)
        lines += _unseen_pods(played_fleet)
    lines += _required_limits(forecast)
    if source := stale_source(now):
        lines.append(f"What is known of {source} is old: the rollout may begin differently.")
    if now.visibility.bus_down_since is not None:
        lines.append("NATS is unreachable: the plan starts when it is back.")
    return (*lines, _basis(forecast.plays, history, jobs)) if moves else tuple(lines)


# Nodes that do not start or do not end.


def _starts(plan: PlanAnswer, fleet: Fleet) -> list[str]:
    names = [f"{name} ({why})" for name, why in _without_forecast(plan, fleet).items()]
    if names:
        many, verb = plural(len(names), "node"), _is(len(names))
        return [f"{many} {verb} left out: {first_few(names, 3)}."]
    if plan.nodes or fleet.pools[plan.pool].gone:
        return []
    if not any(node.pool == plan.pool for node in fleet.nodes.values()):
        return [f"There is no node to plan for: {NO_NODES}."]
    return ["Every node is up to date already."]


def _without_forecast(plan: PlanAnswer, fleet: Fleet) -> dict[str, str]:
    """Return each node that a plan leaves out although its driver is another, with the reason."""
    pool = fleet.pools[plan.pool]
    known = {node.node for node in plan.nodes}
    left_out: dict[str, str] = {}
    for name, node in sorted(fleet.nodes.items()):
        build = pool.build(pool.target, node.variant)
        is_done = build is not None and node.driver_label == build.label
        if node.pool == plan.pool and not is_done and name not in known:
            left_out[name] = left_out_reason(node)
    return {name: reason for name, reason in left_out.items() if reason}


def _halted(plan: PlanAnswer) -> list[str]:
    if all(stop.kind is not PlanStopKind.HALTED for stop in plan.stops):
        return []
    return [
        "The plan assumes that the driver loads as usual after the release: mend the cause first."
    ]


def _unseen_driver(plan: PlanAnswer, fleet: Fleet, played_fleet: Fleet) -> list[str]:
    """Tell that a driver was only named: nothing looked for it, and no node has it."""
    version, pool = played_fleet.pools[plan.pool].version, fleet.pools[plan.pool]
    loaded = {node.loaded.version for node in fleet.nodes.values() if node.loaded is not None}
    if not version or plan.target == pool.target or version in {pool.version, *loaded}:
        return []
    return [f"No node has {version}: whether that driver exists was not checked."]


def _under_way(plan: PlanAnswer, fleet: Fleet) -> list[str]:
    """Tell of the rollout of another target that this one takes over from."""
    rollout = fleet.pools[plan.pool].rollout
    status = RolloutStatus() if rollout is None else rollout.status
    word = _OPEN.get(status.phase)
    if word is None or not plan.nodes or status.target in ("", plan.target):
        return []
    done = f"{status.counts.done} of {plural(status.counts.total, 'node')} done"
    rollout_of = f"The rollout of {status.version or status.short_target} {word} ({done})."
    assumed = "nodes whose driver is being replaced finish that first, the others skip it"
    return [f"{rollout_of} This plan takes over from it now: {assumed}."]


def _unknown_ends(plan: PlanAnswer) -> list[str]:
    lines = [
        f"The end of {node.node} is unknown ({node.wait.code.value}): {_reason(node.wait)}."
        for node in plan.nodes
        if node.start_p50 is not None and node.end_p50 is None and node.wait is not None
        if node.wait.code not in (WaitCode.FAILED, WaitCode.HALTED)
    ]
    more = plural(len(lines) - 3, "more node")
    return lines[:3] + ([f"The end of {more} is unknown too."] if len(lines) > 3 else [])


def _reason(wait: WaitReason) -> str:
    who = people_of(wait.who)
    return f"{wait.detail.rstrip('.')} (can be ended by {who})" if who else wait.detail


# The course of the rollout.


def _proof(forecast: Forecast) -> list[str]:
    proof = forecast.proof
    if proof is None:
        return []
    lines: list[str] = []
    after, nodes = proof.after, forecast.answer.nodes
    starts = [node.start_p50 for node in nodes if node.start_p50 is not None]
    is_awaited = after.p50 is not None and any(start >= after.p50 for start in starts)
    if is_awaited and len(starts) > proof.threshold:
        some = plural(proof.threshold, "node")
        have = "has" if proof.threshold == 1 else "have"
        lines.append(f"Others start once {some} {have} proven the driver: {after}.")
    if proof.delay is not None:
        delay = proof.delay
        endless = delay.seconds == inf
        how_long = "without end" if endless else f"for {format_duration(delay.seconds)}"
        lines.append(f"{delay.node} delays the proof {how_long}: {delay.detail}.")
    return lines


def _failures(forecast: Forecast) -> list[str]:
    lines: list[str] = []
    if number := forecast.halted_plays:
        halted = f"In {number} of {_runs(forecast.plays)} failures halt the rollout"
        few = f"times are of the other {forecast.plays - number}"
        many = "the nodes that are left would wait for a person"
        lines.append(f"{halted}; {few if 2 * number < forecast.plays else many}.")
    if failing := forecast.failing:
        lines.append(
            f"{plural(len(failing), 'node')} will probably fail and stay cordoned:"
            f" {first_few(failing, 3)}."
        )
    if by_chance := forecast.failing_by_chance:
        lines.append(f"About {plural(by_chance, 'node')} will fail by chance.")
    return lines


def _unavailable(plan: PlanAnswer, fleet: Fleet) -> list[str]:
    members = [node for node in fleet.nodes.values() if node.pool == plan.pool]
    reasons = {node.name: unavailable_reason(node)[0] for node in members}
    already: dict[str, list[str]] = {}
    for name, why in sorted(reasons.items()):
        if why:
            already.setdefault(why, []).append(name)
    is_said = any(node.wait is not None and ALREADY in node.wait.detail for node in plan.nodes)
    if is_said or not already:
        return []
    told = (f"{first_few(names, 3)} ({why})" for why, names in already.items())
    return [f"Not usable already: {', '.join(told)}."]


def _unseen_pods(fleet: Fleet) -> list[str]:
    unseen = PodEffects(fleet).unwatched_nodes
    if not unseen:
        return []
    known = "only those with GPUs are known, by uid, without their jobs and disruption budgets"
    return [f"The pods of {plural(unseen, 'node')} could not be listed: {known}."]


def _required_limits(forecast: Forecast) -> list[str]:
    limits = forecast.required_limits
    return [] if limits is None else [f"{limits.why[0].upper()}{limits.why[1:]}."]


def _basis(plays: int, history: History, jobs: LearnedJobs) -> str:
    """Tell how many plays there were, and which durations are measured and which assumed."""
    few = ", of which a node's p95 is the worst" if plays < _PREDICTING_PLAYS else ""
    text = f"Durations (p50-p95, {_runs(plays)}{few})"
    if seen := _seen(history):
        took = "took to come up" if history.brought_up else "took last"
        text += f" as {plural(history.nodes, 'node')} {took}: {seen};"
    if jobs.jobs:
        span = _span(jobs.left("", 0.0, _MEDIAN), jobs.left("", 0.0, _LATE))
        text += f" as {plural(jobs.jobs, 'job')} of the pool took: {span};"
    assumed = ", ".join(
        f"{label} {_span(span.quantile(_MEDIAN), span.p95)}"
        for label, span, is_seen in _labelled(FleetProfile(), history, jobs)
        if not is_seen
    )
    return f"{text} assumed: {assumed}, and how often things fail."


def _runs(plays: int) -> str:
    return plural(plays, "simulated run")


def _seen(history: History) -> str:
    """Return the durations that were measured in this fleet."""
    measured = (
        ("driver restart", history.restart),
        ("validation", history.validation),
        ("image pull", history.pull),
        ("pods leave", history.eviction),
    )
    return ", ".join(
        f"{label} {_span(each.quantile(_MEDIAN), each.quantile(_LATE))}"
        for label, each in measured
        if each is not None
    )


def _labelled(
    profile: FleetProfile, history: History, jobs: LearnedJobs
) -> tuple[tuple[str, Lognormal, bool], ...]:
    """Return what takes how long, and whether that was seen in this fleet."""
    restart, validation, eviction, pull = (
        each is not None
        for each in (history.restart, history.validation, history.eviction, history.pull)
    )
    return (
        ("driver load", profile.load, restart),
        ("validation", profile.validation, validation),
        ("unload", profile.unload, restart),
        ("image pull", profile.pull, pull),
        ("pod end", profile.stop, eviction),
        ("job", profile.job, bool(jobs.jobs)),
        ("budget's refusal", profile.refusal, False),
    )


# Numbers and names.


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _span(median: float, late: float) -> str:
    """Format two durations: `2-4 min`, `45 s-2 min`, `1 s` where they are the same."""
    first, second = (format_duration(_rough(each)) for each in (median, late))
    number, _, unit = first.partition(" ")
    if first == second:
        return first
    return f"{number}-{second}" if second.split(" ")[1:] == [unit] else f"{first}-{second}"


def _rough(seconds: float) -> float:
    """Round a duration of a minute and more to minutes."""
    return seconds if seconds < 60.0 else round(seconds / 60.0) * 60.0
