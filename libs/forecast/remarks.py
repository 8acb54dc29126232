"""Describe a plan in sentences that a person can act on."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from libs.contracts.waits import WaitCode
from libs.forecast.options import pause_reason
from libs.forecast.percentiles import Percentiles
from libs.forecast.pods import PodEffects
from libs.forecast.rollout_plan import NodeForecast, RolloutPlan
from libs.forecast.text import format_count, format_duration, format_names
from libs.rollout import budget
from libs.rollout.limits import stale_source
from libs.rollout.node_writes import current_record
from libs.rollout.views.fleet import Fleet, Instant

_MANY = 10
"""Minimum number of plays to distinguish chance from a cause."""


def remarks(
    plan: RolloutPlan, fleet: Fleet, played_fleet: Fleet, now: Instant, basis: Iterable[str]
) -> tuple[str, ...]:
    """Return all remarks, the most important first."""
    said: list[str] = []
    if not plan.nodes:
        said.append("Every node is where its policy wants it: there is nothing to do.")
    said += _standing_still(plan, played_fleet)
    said += _paused(plan, fleet)
    said += _unknown(plan)
    said += _proof(plan)
    said += _going_wrong(plan)
    said += _capacity(plan, played_fleet)
    said += _pods(plan, played_fleet)
    said += _needed(plan)
    said += _sight(now)
    return (*said, _plays(plan), *basis)


# What will not move.


def _standing_still(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    still = [node for node in plan.nodes if node.start.p50 is None and node.end.p50 is None]
    reasons: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node in still:
        if node.wait is not None:
            reasons[node.wait.code.value, _reason(node)].append(node.node)
    said = [
        f"{format_count(len(names), 'node')} will not move ({code}):"
        f" {format_names(names)}: {reason}."
        for (code, reason), names in sorted(
            reasons.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]
    if fleet.pools[plan.pool].upgrade.max_unavailable in (0, "0", "0%"):
        moving = len(plan.nodes) - len(still)
        said.insert(
            0,
            "maxUnavailable is 0: no node that is available is started."
            f" {format_count(moving, 'node')} that cannot be used now may move all the same.",
        )
    return said


def _reason(node: NodeForecast) -> str:
    wait = node.wait
    if wait is None:
        return ""
    return f"{wait.detail.rstrip('.')} (who can end it: {wait.who})" if wait.who else wait.detail


def _paused(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    why = pause_reason(fleet.pools[plan.pool])
    if not why:
        return []
    return [f"The pool is held ({why}): times count from the moment when that ends."]


def _unknown(plan: RolloutPlan) -> list[str]:
    """Describe nodes that start and whose end is unknown."""
    found = [
        node
        for node in plan.nodes
        if node.start.p50 is not None and node.end.p50 is None and node.wait is not None
        if node.wait.code is not WaitCode.FAILED
    ]
    return [
        f"When {node.node} is in place is unknown ({node.wait.code.value}): {_reason(node)}."
        for node in found[:3]
        if node.wait is not None
    ] + ([f"So it is with {format_count(len(found) - 3, 'more node')}."] if len(found) > 3 else [])


# How it goes.


def _proof(plan: RolloutPlan) -> list[str]:
    proof = plan.proof
    if proof is None:
        return []
    after = proof.after
    phase = (
        f"Until the driver is proven, by"
        f" {format_count(proof.threshold, 'node')}, only a few start at a"
        f" time: that takes {_about(after)}."
    )
    said = [phase]
    if proof.delay is not None:
        held = proof.delay
        long = "without an end" if held.seconds == inf else f"for {format_duration(held.seconds)}"
        said.append(f"{held.node} holds up the proof, {long}: {held.detail}.")
    return said


def _about(time: Percentiles) -> str:
    if time.p95 is None:
        return f"{format_duration(time.p50)}, and it may never come to an end"
    return (
        f"{format_duration(time.p50)}, in 19 of 20 cases no more than {format_duration(time.p95)}"
    )


def _going_wrong(plan: RolloutPlan) -> list[str]:
    said: list[str] = []
    if plan.halted_plays:
        said.append(
            f"In {plan.halted_plays} of {plan.plays} plays the driver is halted for"
            f" its failures, and the"
            " rest waits for a person."
        )
    failing = [node.node for node in plan.nodes if _will_fail(node, plan.plays)]
    if failing:
        said.append(
            f"{format_count(len(failing), 'node')} will probably fail, and stay cordoned:"
            f" {format_names(failing)}."
        )
    chance = sum(node.failed_plays for node in plan.nodes) / plan.plays - len(failing)
    if chance >= 1:
        said.append(f"About {chance:.0f} nodes fail by chance, nobody knows which.")
    return said


def _will_fail(node: NodeForecast, plays: int) -> bool:
    """Return whether the node probably fails; with few plays, only if a cause is known."""
    return 2 * node.failed_plays > plays and (plays >= _MANY or bool(node.blocked_by))


def _capacity(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    if not plan.nodes:
        return []
    members = [node for node in fleet.nodes.values() if node.pool == plan.pool]
    already = sum(bool(budget.unavailable_reason(node, current_record(node))) for node in members)
    loss = plan.loss
    said = (
        f"At the worst {loss.nodes} of {format_count(len(members), 'node')} are"
        f" out of service at one"
        f" time, with {format_count(loss.gpus, 'GPU')}, {format_duration(loss.at)} from now"
    )
    said += f"; {already} of them are already." if already else "."
    hours = f"{plan.gpu_hours_lost:.1f} GPU-hours are lost with nodes that are out of service"
    return [said, f"{hours}; what evicted jobs have to compute again is not in that."]


def _pods(plan: RolloutPlan, fleet: Fleet) -> list[str]:
    said: list[str] = []
    evicted = sum(len(node.evicted) for node in plan.nodes)
    if evicted:
        said.append(f"{format_count(evicted, 'pod')} will be evicted.")
    lost = [pod for node in plan.nodes for pod in node.lost_pods]
    if lost:
        said.append(
            f"With {format_count(len(lost), 'pod')} something is lost: {format_names(lost)}."
        )
    blocked = sorted({name for node in plan.nodes for name in node.blocked_by})
    if blocked:
        said.append(
            f"{format_count(len(blocked), 'disruption budget')} will refuse, as things stand:"
            f" {format_names(blocked)}."
        )
    unseen = PodEffects(fleet).unseen
    if unseen:
        said.append(
            f"Nobody has looked at the pods of {format_count(unseen, 'node')}: of"
            f" those only such with"
            " GPUs are known, by uid, and neither jobs nor disruption budgets."
        )
    return said


def _needed(plan: RolloutPlan) -> list[str]:
    found = plan.required_limits
    if found is None:
        return []
    if found.max_unavailable is None:
        return [f"No maxUnavailable can be named by which it is through in time: {found.why}."]
    least = f"To be through in time maxUnavailable has to be {found.max_unavailable} or more"
    return [f"{least}: {found.why}."]


# What it is based on.


def _sight(now: Instant) -> list[str]:
    said: list[str] = []
    if source := stale_source(now):
        said.append(f"The last word of {source} is old: what is foreseen may begin otherwise.")
    if now.visibility.bus_down_since is not None:
        said.append("NATS is away: the plan counts from when it is back.")
    return said


def _plays(plan: RolloutPlan) -> str:
    said = (
        f"Based on {format_count(plan.plays, 'play')} of this rollout, which differ by chance alone"
    )
    return f"{said}." if plan.plays >= _MANY else f"{said}: for 19 of 20 cases stands the worst."
