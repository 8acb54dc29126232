"""The step of a node without an upgrade lease: one function for each state that it rests in."""

from libs.contracts.node import NodeRecord, Operation, UpgradeState, WaitCode, without_details
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.eligibility import (
    is_broken,
    removal_candidate,
    start_candidate,
    validation_candidate,
)
from libs.rollout.failed_gpus import describe_failed_gpus
from libs.rollout.mig_at_rest import divide_at_rest
from libs.rollout.node_driver import (
    Goal,
    covers_run,
    current_run,
    goal_of,
    is_in_place,
    is_shut_out,
    is_unloaded,
    passed_evidence,
    target_of,
)
from libs.rollout.node_writes import (
    RESTING_STATES,
    cordon_at_release,
    current_lease,
    current_record,
    mark_required,
    unmark_required,
    write_step,
)
from libs.rollout.persons_lease import describe_lease, has_persons_lease, lease_ended_by
from libs.rollout.revalidation import driver_absent_wait, revalidate
from libs.rollout.slots import idle_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from libs.rollout.wait_reasons import FAILED_AND_HALTED, FAILED_AND_RELEASED, wait

# Enum members used for every node, looked up once: access by the class is ten times slower.
_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_SETTLED = Readiness.SETTLED


def step_at_rest(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """Return what a node without our lease needs, or why it has to wait."""
    record = current_record(node)
    if (
        record is not None
        and record.state == node.state == _DONE
        and node.pool == pool.key
        and not (node.excluded or node.safe_load or pool.gone)
    ):
        build = pool.build(pool.target, node.variant)
        if (
            build is not None
            and build.readiness is _SETTLED
            and is_in_place(node, record, build.label, pool.method)
        ):
            if is_leased(node):
                if step := _idle_under_persons_lease(node, record, now):
                    return step
                divides = divide_at_rest(node, record, pool, now, proven=True) is not None
                return _leased_wait(node, now) if divides else None
            return idle_step(node, record, now) or divide_at_rest(
                node, record, pool, now, proven=True
            )
    return _step_not_in_place(node, record, pool, now)


def is_leased(node: NodeView) -> bool:
    """Whether another owner has the node: nothing of ours starts on it."""
    return isinstance(node.lease, MalformedAnnotation) or current_lease(node) is not None


def _idle_under_persons_lease(
    node: NodeView, record: NodeRecord | None, now: Instant
) -> Step | None:
    """Correct the slots of a node that a person has: what ended before may not have sent `idle`.

    `idle` needs no lease. The slots of a node whose lease a person replaced are left alone.
    """
    if not has_persons_lease(node) or record is None or record.state not in RESTING_STATES:
        return None
    return idle_step(node, record, now)


def _leased_wait(node: NodeView, now: Instant) -> Wait:
    return wait(WaitCode.SKIPPED, describe_lease(node), now, who=lease_ended_by(node))


def _step_not_in_place(
    node: NodeView, record: NodeRecord | None, pool: PoolView, now: Instant
) -> NodeOutcome:
    """Decide a node that is not in place, by its state."""
    if is_leased(node):
        return _idle_under_persons_lease(node, record, now) or _leased_wait(node, now)
    if idle := idle_step(node, record, now):
        return idle
    if is_unmanaged(node, record, pool):
        return None
    if pool.gone:
        return wait(WaitCode.POLICY_GONE, f"the policy of pool {pool.key} was deleted", now)
    if now.visibility.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, now.visibility.foreign_operator, now)
    if is_unwanted(node, pool):
        return step_removal(node, record, pool, now)
    if record is None:
        return step_new_node(node, pool, now)
    if record.state == _DONE:
        return step_done(node, record, pool, now)
    if record.state == _FAILED:
        return step_failed(node, record, pool, now)
    return step_upgrade_required(node, record, pool, now)


def step_new_node(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """Decide a node without a record, or a new Node of an old name (docs/states.md#v-bring-up)."""
    goal = goal_of(node, pool, pool.target, now)
    if isinstance(goal, Goal) and goal.label == node.driver_label:
        run = current_run(node, pool)
        if run is not None and run.ready:
            return validation_candidate(node, pool, goal, now)
    goal = goal_of(node, pool, target_of(node, None, pool), now)
    return goal if isinstance(goal, Wait) else start_candidate(node, None, pool, goal, now)


def step_done(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> NodeOutcome:
    """Decide a node that was upgraded before: another driver is wanted, or the proof is void."""
    goal = goal_of(node, pool, pool.target, now)
    if isinstance(goal, Wait):
        return goal
    evidence = passed_evidence(node, record)
    reason = ""
    if goal.label != node.driver_label:
        reason = (
            f"the node runs {record.target or 'another driver'}; the policy wants {pool.target}"
        )
    elif node.safe_load:
        reason = "the driver waits for permission to load (driver-wait-for-safe-load)"
    elif (
        evidence is not None
        and evidence.kernel != node.kernel
        and pool.method is not InstallMethod.PRE_INSTALLED
    ):
        reason = (
            f"the driver is validated for kernel {evidence.kernel}, the node runs {node.kernel}"
        )
    elif evidence is None and is_shut_out(node):
        reason = "the driver pod waits at the closed gate, and no validation allows opening it"
    elif evidence is None and pool.method is InstallMethod.HOST and is_unloaded(node):
        reason = "no driver is loaded, and no validation allows loading one again"
    if not reason:
        return revalidate(node, record, pool, goal, now)
    if pool.constraints.may_mark_required:
        return mark_required(node, record, pool, now, reason, cause="")
    return start_candidate(node, record, pool, goal, now)


def step_upgrade_required(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> NodeOutcome:
    """Decide a node in `upgrade-required`: it needs a change that has not begun."""
    goal = goal_of(node, pool, target_of(node, record, pool), now)
    if isinstance(goal, Wait):
        return goal
    if goal.label == node.driver_label and not (record.asked or node.safe_load):
        outcome = _settle_unwanted_change(node, record, pool, goal, now)
        if outcome is not None:
            return outcome
    return start_candidate(node, record, pool, goal, now)


def _settle_unwanted_change(
    node: NodeView, record: NodeRecord, pool: PoolView, goal: Goal, now: Instant
) -> NodeOutcome:
    """Settle a node that no longer needs its required change; None: it needs an operation."""
    evidence, run = passed_evidence(node, record), current_run(node, pool)
    if evidence is not None and evidence.kernel == node.kernel:
        is_validated = evidence.token == record.token and not record.unproven
        if is_validated and is_in_place(node, record, goal.label, pool.method):
            return unmark_required(node, record, goal.target, now)
        if run is None or not run.ready:
            return driver_absent_wait(node, pool, now)
        return validation_candidate(node, pool, goal, now)
    if evidence is not None or is_broken(record):
        return None
    if run is None or not run.ready or run.instance == record.revalidated:
        return None
    return validation_candidate(node, pool, goal, now)


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
        reason = f"failed on {record.target or 'a driver removal'}; the policy now wants {wanted}"
        return mark_required(node, record, pool, now, reason)
    retry = None if node.failed_gpus else retry_automatically(node, record, pool, now)
    return retry or _failed_wait(node, record, pool, now)


def retry_automatically(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> NodeOutcome:
    """Retry as often as the strategy allows, and while the target is not halted."""
    constraints = pool.constraints
    if not has_retries(record, pool) or not constraints.admits(record.target):
        return None
    because = f"automatic retry after a failure ({without_details(record.cause)})"
    if constraints.paused:
        return wait(WaitCode.PAUSED, f"{because} is paused: {constraints.paused}", now)
    return mark_required(node, record, pool, now, because, back_off_until=0.0, back_off_seconds=0.0)


def has_retries(record: NodeRecord, pool: PoolView) -> bool:
    return record.attempt <= pool.strategy.retries


def is_in_sync(node: NodeView, record: NodeRecord, pool: PoolView) -> bool:
    """Whether the wanted driver runs, and this run has not failed validation before."""
    run = current_run(node, pool)
    if run is None or not run.ready or run.instance == record.revalidated:
        return False
    evidence = node.evidence
    return evidence is None or evidence.passed or not covers_run(evidence, run)


def _failed_wait(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> Wait:
    reason = f"the upgrade failed: {record.cause or 'no cause recorded'}"
    who: str | None = None
    if not pool.constraints.admits(record.target):
        reason += f"; no retry while the target is halted: {pool.constraints.halted[record.target]}"
        is_retried = has_retries(record, pool) and not node.failed_gpus
        who = FAILED_AND_RELEASED if is_retried else FAILED_AND_HALTED
    elif node.failed_gpus:
        reason += f"; no automatic retry now: {describe_failed_gpus(node.failed_gpus)}"
    elif is_shut_out(node):
        reason += "; the driver pod waits at the closed gate, so the node cannot recover by itself"
    return wait(WaitCode.FAILED, reason, now, who=who)


def is_unwanted(node: NodeView, pool: PoolView) -> bool:
    return node.excluded or node.pool != pool.key


def is_unmanaged(node: NodeView, record: NodeRecord | None, pool: PoolView) -> bool:
    """Whether nothing on the node is ours, and nothing is wanted."""
    is_abandoned = pool.gone and not node.state
    return record is None and not node.driver_label and (is_unwanted(node, pool) or is_abandoned)


def step_removal(
    node: NodeView, record: NodeRecord | None, pool: PoolView, now: Instant
) -> NodeOutcome:
    """Remove the driver under a lease. Where none is installed, drop what we wrote at once."""
    if record is not None and not _has_driver(node, record):
        return write_step(
            node,
            None,
            now,
            because="the node should have no driver, and has none",
            lease=None,
            cordon=cordon_at_release(node, record, proven=True),
            driver_label="",
            initially_cordoned=False,
        )
    failed = record is not None and record.state == UpgradeState.UPGRADE_FAILED
    if record is not None and failed and record.operation is Operation.REMOVE:
        retry = retry_automatically(node, record, pool, now)
        return retry or wait(
            WaitCode.FAILED,
            f"the removal of the driver failed: {record.cause or 'no cause recorded'}",
            now,
        )
    return removal_candidate(node, record, pool, now)


def _has_driver(node: NodeView, record: NodeRecord) -> bool:
    """Whether a driver of ours may be installed; the label can have been removed."""
    return bool(node.driver_label) or record.started or record.evidence is not None
