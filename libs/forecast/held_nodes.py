"""Jobs and disruption budgets that hold nodes up: for how long, and what ends that. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from libs.contracts.node import UpgradeState
from libs.contracts.queries import PlanAnswer, PlannedNode
from libs.contracts.words import first_few, format_duration
from libs.forecast.job_lengths import LearnedJobs
from libs.policy.kinds.strategy import OnEvictionTimeout, OnJobTimeout
from libs.rollout import limits
from libs.rollout.plan_time import ASSUMED_JOB, PlanTime
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

_MOST: Final = 3
"""Nodes that are named for each reason."""
_JOBS: Final = UpgradeState.WAIT_FOR_JOBS_REQUIRED
_EVICTING: Final = (UpgradeState.POD_DELETION_REQUIRED, UpgradeState.DRAIN_REQUIRED)


def held_remarks(plan: PlanAnswer, fleet: Fleet, now: Instant, learned: LearnedJobs) -> list[str]:
    """Return a line for each node that a job or a disruption budget holds up."""
    pool = fleet.pools[plan.pool]
    views = [
        (node, view)
        for node in plan.nodes
        if node.start_p50 is not None and (view := fleet.nodes.get(node.node)) is not None
    ]
    jobs = [
        _job_line(view, pods, pool, now, learned)
        for node, view in views
        if node.end_p50 is not None and (pods := _awaited_jobs(view))
    ]
    budgets = [
        _budget_line(view, pool, now, has_stops=bool(plan.stops))
        for node, view in views
        if (node.end_p50 is None or deletes_by_force(pool)) and _is_refused(node, view)
    ]
    return [*_first(jobs, "jobs"), *_first(budgets, "disruption budgets")]


def _first(lines: list[str], of: str) -> Iterator[str]:
    yield from lines[:_MOST]
    if (more := len(lines) - _MOST) > 0:
        yield f"{more} more {'node waits' if more == 1 else 'nodes wait'} for {of} likewise."


def _state(view: NodeView) -> str:
    """Return the state of a node in flight; empty: it is at rest."""
    record = view.current_record
    return "" if record is None or view.upgrade_lease is None else record.state


# Jobs.


def _awaited_jobs(view: NodeView) -> list[WorkloadPod]:
    """Return the pods of jobs that a node waits for, or will."""
    return [pod for pod in view.pods or () if pod.job] if _state(view) in ("", _JOBS) else []


def _job_line(
    view: NodeView, pods: list[WorkloadPod], pool: PoolView, now: Instant, learned: LearnedJobs
) -> str:
    names = first_few((pod.display_name for pod in pods), _MOST)
    age, kind = min((_age(pod, now), pod.job_kind) for pod in pods)
    left = PlanTime(learned.left(kind, age, 0.5), learned.left(kind, age, 0.95))
    basis = "likely to go on for" if learned.jobs else ASSUMED_JOB
    word, owner = ("job", "its owner") if len(pods) == 1 else ("jobs", "their owners")
    waits = "waits" if _state(view) else "will wait"
    limit = _job_limit(view, pool, now)
    return (
        f"{view.name} {waits} for the {word} {names}, {basis} {left}:"
        f" {owner} can end that, {limit}."
    )


def _age(pod: WorkloadPod, now: Instant) -> float:
    return 0.0 if pod.started is None else max(0.0, now.at - pod.started)


def _job_limit(view: NodeView, pool: PoolView, now: Instant) -> str:
    field = "waitForCompletion.timeoutSeconds"
    seconds = pool.upgrade.wait_for_completion.timeout_seconds
    left = _left(view, pool, now) if _state(view) else None
    if not seconds and left is None:
        return f"and nothing else does ({field} is 0)"
    when = (
        f"in {format_duration(left)}"
        if left is not None
        else f"{format_duration(seconds)} after the node has started"
    )
    is_deferred = pool.strategy.on_job_timeout is OnJobTimeout.DEFER
    what = "the node is given back, and tried again later" if is_deferred else "pods are evicted"
    return f"or {when} {what} ({field})"


# Disruption budgets.


def _is_refused(node: PlannedNode, view: NodeView) -> bool:
    return bool(node.blocked_by) and _state(view) in ("", _JOBS, *_EVICTING)


def _budget_line(view: NodeView, pool: PoolView, now: Instant, *, has_stops: bool) -> str:
    is_evicting = _state(view) in _EVICTING
    left = _left(view, pool, now) if is_evicting else None
    if left is not None:
        clock = "" if has_stops else f" ({datetime.fromtimestamp(now.at + left, UTC):%H:%M:%S} UTC)"
        when = f"in {format_duration(left)}{clock}"
    else:
        deletion = pool.upgrade.gpu_pod_deletion or pool.upgrade.pod_deletion
        when = f"{format_duration(deletion.timeout_seconds)} after it begins"
    verb = "waits" if is_evicting else "will wait"
    return (
        f"{view.name} {verb} for a disruption budget, and the plan assumes that it goes on"
        f" refusing: {when} the eviction times out; {_after_refusal(view, pool)}."
    )


def _after_refusal(view: NodeView, pool: PoolView) -> str:
    """Return what becomes of a node whose eviction has timed out."""
    if deletes_by_force(pool):
        return "the pods are then deleted by force"
    if pool.strategy.on_eviction_timeout is OnEvictionTimeout.RELEASE:
        wait = format_duration(limits.BACK_OFF)
        return f"the node is then given back, and tried again {wait} later or more"
    retries = pool.strategy.retries - _attempt(view, pool) + 1
    if retries <= 0:
        return "the node then fails for good"
    times = "once" if retries == 1 else f"{retries} times"
    return f"the node then fails, and is tried again {times} unless the rollout is halted"


def _attempt(view: NodeView, pool: PoolView) -> int:
    """Return which attempt to reach the target is under way, or is the next one."""
    record = view.current_record
    if record is not None and _state(view):
        return record.attempt
    return 1 + (record.attempt if record is not None and record.target == pool.target else 0)


def deletes_by_force(pool: PoolView) -> bool:
    """Return whether pods are deleted whose eviction has timed out."""
    return pool.strategy.on_eviction_timeout is OnEvictionTimeout.FORCE_DELETE


def _left(view: NodeView, pool: PoolView, now: Instant) -> float | None:
    """Return the seconds until the state of a node in flight times out; None: never."""
    record = view.current_record
    deadline = None if record is None else limits.effective_deadline(record, pool, now)
    return None if deadline is None else max(0.0, deadline - now.at)
