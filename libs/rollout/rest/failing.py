"""Failed nodes: only a new, passed validation makes one done (docs/states.md#d-1).

It is tried for a driver that came into sync by itself, once per run of it; on another target; as
often as the strategy says; and when a person asks, which `edits` hears.
"""

from libs.contracts.node import Record
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Outcome, Wait
from libs.rollout.rest.driver import Run, is_about, running, shut_out
from libs.rollout.rest.stamping import required
from libs.rollout.rest.starting import validate
from libs.rollout.rest.targets import goal_of, target_of
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import wait


def failed(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Outcome:
    """`upgrade-failed`: cordoned, unless a person took that away; what ends it now."""
    wanted = target_of(node, record, pool)
    goal = goal_of(node, pool, wanted, now)
    another = record.target != wanted
    if isinstance(goal, Wait):
        return goal if another else _for_good(node, record, pool, now)
    if goal.label == node.driver_label and in_sync(node, record, pool):
        return validate(node, pool, goal, now)
    if another:
        why = f"it failed on {record.target or 'a removal'}, and is to get {wanted}"
        return required(node, record, pool, now, why)
    return retried(node, record, pool, now) or _for_good(node, record, pool, now)


def retried(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Outcome:
    """Once more by itself, as often as the strategy allows, and while nothing is halted."""
    tried, standing = record.attempt, pool.standing
    if tried > pool.strategy.retries or not standing.admits(record.target):
        return None
    again = f"it failed ({record.cause}), and is tried once more"
    if standing.paused:
        return wait(WaitCode.PAUSED, f"{again} when things may start: {standing.paused}", now)
    return required(node, record, pool, now, again, back_off_until=0.0, back_off_seconds=0.0)


def in_sync(node: NodeView, record: Record, pool: PoolView) -> bool:
    """Whether its driver runs as it should, and this run was not validated in vain before."""
    run = running(node, pool)
    if run is None or not run.ready or run.instance == record.revalidated:
        return False
    return not _in_vain(node, run)


def _in_vain(node: NodeView, run: Run) -> bool:
    evidence = node.evidence
    return evidence is not None and not evidence.passed and is_about(evidence, run)


def _for_good(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Wait:
    why = record.cause or "its attempt failed"
    if not pool.standing.admits(record.target):
        why += f"; no retry: {pool.standing.halted[record.target]}"
    elif shut_out(node):
        why += "; its driver waits behind a shut gate, so it does not heal by itself"
    return wait(WaitCode.FAILED, why, now)
