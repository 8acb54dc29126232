"""Failed nodes: only a new, passed validation makes one done (docs/states.md#d-1).

A validation is tried once per run of a driver that came in sync by itself; on another target; as
often as the strategy retries; and when a person requests it (see `edits`).
"""

from libs.contracts.node import NodeRecord
from libs.contracts.waits import WaitCode
from libs.rollout.at_rest.eligibility import validation_candidate
from libs.rollout.at_rest.running_driver import DriverRun, covers_run, current_run, is_shut_out
from libs.rollout.at_rest.state_writes import mark_required
from libs.rollout.at_rest.targets import goal_of, target_of
from libs.rollout.decision import NodeOutcome, Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait


def step_failed(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> NodeOutcome:
    """Decide a node in `upgrade-failed`, which is cordoned unless a person uncordoned it."""
    wanted = target_of(node, record, pool)
    goal = goal_of(node, pool, wanted, now)
    is_other_target = record.target != wanted
    if isinstance(goal, Wait):
        return goal if is_other_target else _failed_wait(node, record, pool, now)
    if goal.label == node.driver_label and is_in_sync(node, record, pool):
        return validation_candidate(node, pool, goal, now)
    if is_other_target:
        why = f"failed on {record.target or 'a driver removal'}; the policy now wants {wanted}"
        return mark_required(node, record, pool, now, why)
    return retry_automatically(node, record, pool, now) or _failed_wait(node, record, pool, now)


def retry_automatically(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> NodeOutcome:
    """Retry as often as the strategy allows, and while the target is not halted."""
    attempt, constraints = record.attempt, pool.constraints
    if attempt > pool.strategy.retries or not constraints.admits(record.target):
        return None
    because = f"automatic retry after a failure ({record.cause})"
    if constraints.paused:
        return wait(WaitCode.PAUSED, f"{because} is paused: {constraints.paused}", now)
    return mark_required(node, record, pool, now, because, back_off_until=0.0, back_off_seconds=0.0)


def is_in_sync(node: NodeView, record: NodeRecord, pool: PoolView) -> bool:
    """Whether the wanted driver runs, and this run has not failed validation before."""
    run = current_run(node, pool)
    if run is None or not run.ready or run.instance == record.revalidated:
        return False
    return not _failed_validation(node, run)


def _failed_validation(node: NodeView, run: DriverRun) -> bool:
    evidence = node.evidence
    return evidence is not None and not evidence.passed and covers_run(evidence, run)


def _failed_wait(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> Wait:
    why = f"the upgrade failed: {record.cause or 'no cause recorded'}"
    if not pool.constraints.admits(record.target):
        why += f"; no retry while the target is halted: {pool.constraints.halted[record.target]}"
    elif is_shut_out(node):
        why += "; the driver pod waits at the closed gate, so the node cannot recover by itself"
    return wait(WaitCode.FAILED, why, now)
