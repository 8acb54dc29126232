"""The step of a node at rest: one function for each state that a node rests in."""

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import failed_node, idle_slots, removal, revalidation
from libs.rollout.at_rest.eligibility import is_broken, start_candidate, validation_candidate
from libs.rollout.at_rest.running_driver import (
    current_run,
    is_in_place,
    is_shut_out,
    is_unloaded,
    passed_evidence,
)
from libs.rollout.at_rest.state_writes import mark_required, unmark_required
from libs.rollout.at_rest.targets import Goal, goal_of, target_of
from libs.rollout.decision import NodeOutcome, Wait
from libs.rollout.node_writes import current_lease, current_record
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from libs.rollout.wait_reasons import wait

# Enum members used for every node, looked up once: access by the class is ten times slower.
_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_SETTLED = Readiness.SETTLED


def step_at_rest(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """Return what a node without a lease of ours needs, or why it has to wait."""
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
            return None if lease_holder(node) else idle_slots.idle_step(node, record, now)
    return _step_not_in_place(node, record, pool, now)


def lease_holder(node: NodeView) -> str:
    """Return the owner of the lease, who controls the slots and the state of the node."""
    if isinstance(node.lease, MalformedAnnotation):
        return "an unknown owner (the lease annotation cannot be read)"
    lease = current_lease(node)
    return "" if lease is None else lease.owner.value


def _step_not_in_place(
    node: NodeView, record: NodeRecord | None, pool: PoolView, now: Instant
) -> NodeOutcome:
    """Decide a node that is not in place, by its state."""
    if holder := lease_holder(node):
        who = "the owner of the lease, or an administrator, by removing it"
        return wait(WaitCode.SKIPPED, f"the node is leased by {holder}", now, who=who)
    if idle := idle_slots.idle_step(node, record, now):
        return idle
    if removal.has_nothing_of_ours(node, record, pool):
        return None
    if pool.gone:
        return wait(WaitCode.POLICY_GONE, f"the policy of pool {pool.key} was deleted", now)
    if now.visibility.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, now.visibility.foreign_operator, now)
    if removal.is_unwanted(node, pool):
        return removal.step_removal(node, record, pool, now)
    if record is None:
        return step_new_node(node, pool, now)
    if record.state == _DONE:
        return step_done(node, record, pool, now)
    if record.state == _FAILED:
        return failed_node.step_failed(node, record, pool, now)
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
        return revalidation.revalidate(node, record, pool, goal, now)
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
    """Settle a node whose required change is no longer wanted; None: it needs an operation."""
    evidence, run = passed_evidence(node, record), current_run(node, pool)
    if evidence is not None and evidence.kernel == node.kernel:
        is_validated = evidence.token == record.token and not record.unproven
        if is_validated and is_in_place(node, record, goal.label, pool.method):
            return unmark_required(node, record, goal.target, now)
        if run is None or not run.ready:
            return revalidation.driver_absent_wait(node, pool, now)
        return validation_candidate(node, pool, goal, now)
    if evidence is not None or is_broken(record):
        return None
    if run is None or not run.ready or run.instance == record.revalidated:
        return None
    return validation_candidate(node, pool, goal, now)
