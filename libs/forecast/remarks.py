"""A plan in words: what it is based on, what will not move, what is lost, what stands in the way.

Every remark is one sentence or two that a person can act on. Must not reckon anything.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from libs.contracts.waits import WaitCode
from libs.forecast.foreseen import NodeForecast, Plan
from libs.forecast.likely import Likely
from libs.forecast.pods import Pods
from libs.forecast.wish import paused
from libs.forecast.words import counted, lasting, some
from libs.rollout import budget
from libs.rollout.limits import stale
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.writes import readable

_MANY = 10
"""So many plays are enough to tell chance from cause."""


def remarks(
    plan: Plan, fleet: Fleet, supposed: Fleet, now: Instant, assumed: Iterable[str]
) -> tuple[str, ...]:
    """All of them, the weightiest first; `supposed` is the fleet that was played."""
    said: list[str] = []
    if not plan.nodes:
        said.append("Every node is where its policy wants it: there is nothing to do.")
    said += _standing_still(plan, supposed)
    said += _paused(plan, fleet)
    said += _unknown(plan)
    said += _proof(plan)
    said += _going_wrong(plan)
    said += _capacity(plan, supposed)
    said += _pods(plan, supposed)
    said += _needed(plan)
    said += _sight(now)
    return (*said, _plays(plan), *assumed)


# What will not move.


def _standing_still(plan: Plan, fleet: Fleet) -> list[str]:
    still = [node for node in plan.nodes if node.start.p50 is None and node.end.p50 is None]
    reasons: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node in still:
        if node.wait is not None:
            reasons[node.wait.code.value, _reason(node)].append(node.node)
    said = [
        f"{counted(len(names), 'node')} will not move ({code}): {some(names)}: {reason}."
        for (code, reason), names in sorted(
            reasons.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]
    if fleet.pools[plan.pool].upgrade.max_unavailable in (0, "0", "0%"):
        moving = len(plan.nodes) - len(still)
        said.insert(
            0,
            "maxUnavailable is 0: no node that is available is started."
            f" {counted(moving, 'node')} that cannot be used now may move all the same.",
        )
    return said


def _reason(node: NodeForecast) -> str:
    wait = node.wait
    if wait is None:
        return ""
    return f"{wait.detail.rstrip('.')} (who can end it: {wait.who})" if wait.who else wait.detail


def _paused(plan: Plan, fleet: Fleet) -> list[str]:
    why = paused(fleet.pools[plan.pool])
    if not why:
        return []
    return [f"The pool is held ({why}): times count from the moment when that ends."]


def _unknown(plan: Plan) -> list[str]:
    """Nodes that are taken up, and of which nobody can say when they are done."""
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
    ] + ([f"So it is with {counted(len(found) - 3, 'more node')}."] if len(found) > 3 else [])


# How it goes.


def _proof(plan: Plan) -> list[str]:
    proof = plan.proof
    if proof is None:
        return []
    after = proof.after
    phase = (
        f"Until the driver is proven, by {counted(proof.threshold, 'node')}, only a few start at a"
        f" time: that takes {_about(after)}."
    )
    said = [phase]
    if proof.held is not None:
        held = proof.held
        long = "without an end" if held.seconds == inf else f"for {lasting(held.seconds)}"
        said.append(f"{held.node} holds up the proof, {long}: {held.detail}.")
    return said


def _about(time: Likely) -> str:
    if time.p95 is None:
        return f"{lasting(time.p50)}, and it may never come to an end"
    return f"{lasting(time.p50)}, in 19 of 20 cases no more than {lasting(time.p95)}"


def _going_wrong(plan: Plan) -> list[str]:
    said: list[str] = []
    if plan.halted:
        said.append(
            f"In {plan.halted} of {plan.plays} plays the driver is halted for its failures, and the"
            " rest waits for a person."
        )
    failing = [node.node for node in plan.nodes if _will_fail(node, plan.plays)]
    if failing:
        said.append(
            f"{counted(len(failing), 'node')} will probably fail, and stay cordoned:"
            f" {some(failing)}."
        )
    chance = sum(node.failed for node in plan.nodes) / plan.plays - len(failing)
    if chance >= 1:
        said.append(f"About {chance:.0f} nodes fail by chance, nobody knows which.")
    return said


def _will_fail(node: NodeForecast, plays: int) -> bool:
    """Of few plays that is said only where there is a cause besides chance."""
    return 2 * node.failed > plays and (plays >= _MANY or bool(node.blocked_by))


def _capacity(plan: Plan, fleet: Fleet) -> list[str]:
    if not plan.nodes:
        return []
    members = [node for node in fleet.nodes.values() if node.pool == plan.pool]
    already = sum(bool(budget.unavailable(node, readable(node))) for node in members)
    loss = plan.loss
    said = (
        f"At the worst {loss.nodes} of {counted(len(members), 'node')} are out of service at one"
        f" time, with {counted(loss.gpus, 'GPU')}, {lasting(loss.at)} from now"
    )
    said += f"; {already} of them are already." if already else "."
    hours = f"{plan.gpu_hours_lost:.1f} GPU-hours are lost with nodes that are out of service"
    return [said, f"{hours}; what evicted jobs have to compute again is not in that."]


def _pods(plan: Plan, fleet: Fleet) -> list[str]:
    said: list[str] = []
    evicted = sum(len(node.evicted) for node in plan.nodes)
    if evicted:
        said.append(f"{counted(evicted, 'pod')} will be evicted.")
    lost = [pod for node in plan.nodes for pod in node.lost]
    if lost:
        said.append(f"With {counted(len(lost), 'pod')} something is lost: {some(lost)}.")
    blocked = sorted({name for node in plan.nodes for name in node.blocked_by})
    if blocked:
        said.append(
            f"{counted(len(blocked), 'disruption budget')} will refuse, as things stand:"
            f" {some(blocked)}."
        )
    unseen = Pods(fleet).unseen
    if unseen:
        said.append(
            f"Nobody has looked at the pods of {counted(unseen, 'node')}: of those only such with"
            " GPUs are known, by uid, and neither jobs nor disruption budgets."
        )
    return said


def _needed(plan: Plan) -> list[str]:
    found = plan.needed
    if found is None:
        return []
    if found.max_unavailable is None:
        return [f"No maxUnavailable can be named by which it is through in time: {found.why}."]
    least = f"To be through in time maxUnavailable has to be {found.max_unavailable} or more"
    return [f"{least}: {found.why}."]


# What it is based on.


def _sight(now: Instant) -> list[str]:
    said: list[str] = []
    if source := stale(now):
        said.append(f"The last word of {source} is old: what is foreseen may begin otherwise.")
    if now.sight.away_since is not None:
        said.append("NATS is away: the plan counts from when it is back.")
    return said


def _plays(plan: Plan) -> str:
    said = f"Based on {counted(plan.plays, 'play')} of this rollout, which differ by chance alone"
    return f"{said}." if plan.plays >= _MANY else f"{said}: for 19 of 20 cases stands the worst."
