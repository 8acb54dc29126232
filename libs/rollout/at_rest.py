"""The step of a node without an upgrade lease: one function for each state that it rests in."""

from libs.contracts.node import NodeRecord, Operation, UpgradeState, without_details
from libs.contracts.waits import FAILED_AND_HALTED, FAILED_AND_RELEASED, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.cordons import cordon_at_release
from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.eligibility import (
    is_broken,
    removal_candidate,
    start_candidate,
    validation_candidate,
)
from libs.rollout.failed_gpus import describe_failed_gpus
from libs.rollout.idle_slots import idle_step
from libs.rollout.mig_at_rest import divide_at_rest
from libs.rollout.node_case import NodeCase
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
    NodeChange,
    mark_required,
    unmark_required,
    write_step,
)
from libs.rollout.persons_lease import describe_lease, has_persons_lease, lease_ended_by
from libs.rollout.revalidation import driver_absent_wait, revalidate
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from libs.rollout.wait_reasons import wait

# Enum members used for every node, looked up once: access by the class is ten times slower.
_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_SETTLED = Readiness.SETTLED


def step_at_rest(case: NodeCase) -> NodeOutcome:
    """Return what a node without our lease needs, or why it has to wait."""
    record = case.record
    if (
        record is not None
        and record.state == case.node.state == _DONE
        and case.node.pool == case.pool.key
        and not (case.node.excluded or case.node.safe_load or case.pool.gone)
    ):
        build = case.pool.build(case.pool.target, case.node.variant)
        if (
            build is not None
            and build.readiness is _SETTLED
            and is_in_place(case.node, record, build.label, case.pool.method)
        ):
            if is_leased(case.node):
                if step := _idle_under_persons_lease(case):
                    return step
                divides = divide_at_rest(case, record, proven=True) is not None
                return _leased_wait(case) if divides else None
            return idle_step(case) or divide_at_rest(case, record, proven=True)
    return _step_not_in_place(case)


def is_leased(node: NodeView) -> bool:
    """Whether another owner has the node: nothing of ours starts on it."""
    return isinstance(node.lease, MalformedAnnotation) or node.current_lease is not None


def _idle_under_persons_lease(case: NodeCase) -> Step | None:
    """Correct the slots of a node that a person has: what ended before may not have sent `idle`.

    `idle` needs no lease. The slots of a node whose lease a person replaced are left alone.
    """
    if (
        not has_persons_lease(case.node)
        or case.record is None
        or case.record.state not in RESTING_STATES
    ):
        return None
    return idle_step(case)


def _leased_wait(case: NodeCase) -> Wait:
    return wait(
        WaitCode.SKIPPED, describe_lease(case.node), case.now, who=lease_ended_by(case.node)
    )


def _step_not_in_place(case: NodeCase) -> NodeOutcome:
    """Decide a node that is not in place, by its state."""
    if is_leased(case.node):
        return _idle_under_persons_lease(case) or _leased_wait(case)
    if idle := idle_step(case):
        return idle
    if is_unmanaged(case):
        return None
    if case.pool.gone:
        return wait(
            WaitCode.POLICY_GONE, f"the policy of pool {case.pool.key} was deleted", case.now
        )
    if case.now.visibility.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, case.now.visibility.foreign_operator, case.now)
    if is_unwanted(case):
        return step_removal(case)
    if case.record is None:
        return step_new_node(case)
    if case.record.state == _DONE:
        return step_done(case, case.record)
    if case.record.state == _FAILED:
        return step_failed(case, case.record)
    return step_upgrade_required(case, case.record)


def step_new_node(case: NodeCase) -> NodeOutcome:
    """Decide a node without a record, or a new Node of an old name (docs/states.md#v-bring-up)."""
    goal = goal_of(case, case.pool.target)
    if isinstance(goal, Goal) and goal.label == case.node.driver_label:
        run = current_run(case)
        if run is not None and run.ready:
            return validation_candidate(case, goal)
    goal = goal_of(case, target_of(case))
    return goal if isinstance(goal, Wait) else start_candidate(case, goal)


def step_done(case: NodeCase, record: NodeRecord) -> NodeOutcome:
    """Decide a node that was upgraded before: another driver is wanted, or the proof is void."""
    goal = goal_of(case, case.pool.target)
    if isinstance(goal, Wait):
        return goal
    evidence = passed_evidence(case.node, record)
    reason = ""
    if goal.label != case.node.driver_label:
        runs = record.target or "another driver"
        reason = f"the node runs {runs}; the policy wants {case.pool.target}"
    elif case.node.safe_load:
        reason = "the driver waits for permission to load (driver-wait-for-safe-load)"
    elif (
        evidence is not None
        and evidence.kernel != case.node.kernel
        and case.pool.method is not InstallMethod.PRE_INSTALLED
    ):
        proven, runs = evidence.kernel, case.node.kernel
        reason = f"the driver is validated for kernel {proven}, the node runs {runs}"
    elif evidence is None and is_shut_out(case.node):
        reason = "the driver pod waits at the closed gate, and no validation allows opening it"
    elif evidence is None and case.pool.method is InstallMethod.HOST and is_unloaded(case.node):
        reason = "no driver is loaded, and no validation allows loading one again"
    if not reason:
        return revalidate(case, record, goal)
    if case.pool.constraints.may_mark_required:
        return mark_required(case, record, reason, cause="")
    return start_candidate(case, goal)


def step_upgrade_required(case: NodeCase, record: NodeRecord) -> NodeOutcome:
    """Decide a node in `upgrade-required`: it needs a change that has not begun."""
    goal = goal_of(case, target_of(case))
    if isinstance(goal, Wait):
        return goal
    if goal.label == case.node.driver_label and not (record.asked or case.node.safe_load):
        outcome = _settle_unwanted_change(case, record, goal)
        if outcome is not None:
            return outcome
    return start_candidate(case, goal)


def _settle_unwanted_change(case: NodeCase, record: NodeRecord, goal: Goal) -> NodeOutcome:
    """Settle a node that no longer needs its required change; None: it needs an operation."""
    evidence, run = passed_evidence(case.node, record), current_run(case)
    if evidence is not None and evidence.kernel == case.node.kernel:
        is_validated = evidence.token == record.token and not record.unproven
        if is_validated and is_in_place(case.node, record, goal.label, case.pool.method):
            return unmark_required(case, record, goal.target)
        if run is None or not run.ready:
            return driver_absent_wait(case)
        return validation_candidate(case, goal)
    if evidence is not None or is_broken(record):
        return None
    if run is None or not run.ready or run.instance == record.revalidated:
        return None
    return validation_candidate(case, goal)


def step_failed(case: NodeCase, record: NodeRecord) -> NodeOutcome:
    """Decide a node in `upgrade-failed`, which is cordoned unless a person uncordoned it."""
    wanted = target_of(case)
    goal = goal_of(case, wanted)
    is_other_target = record.target != wanted
    if isinstance(goal, Wait):
        return goal if is_other_target else _failed_wait(case, record)
    if goal.label == case.node.driver_label and is_in_sync(case, record):
        return validation_candidate(case, goal)
    if is_other_target:
        reason = f"failed on {record.target or 'a driver removal'}; the policy now wants {wanted}"
        return mark_required(case, record, reason)
    retry = None if case.node.failed_gpus else retry_automatically(case, record)
    return retry or _failed_wait(case, record)


def retry_automatically(case: NodeCase, record: NodeRecord) -> NodeOutcome:
    """Retry as often as the strategy allows, and while the target is not halted."""
    constraints = case.pool.constraints
    if not has_retries(record, case.pool) or not constraints.admits(record.target):
        return None
    because = f"automatic retry after a failure ({without_details(record.cause)})"
    if constraints.paused:
        return wait(WaitCode.PAUSED, f"{because} is paused: {constraints.paused}", case.now)
    return mark_required(case, record, because, back_off_until=0.0, back_off_seconds=0.0)


def has_retries(record: NodeRecord, pool: PoolView) -> bool:
    return record.attempt <= pool.strategy.retries


def is_in_sync(case: NodeCase, record: NodeRecord) -> bool:
    """Whether the wanted driver runs, and this run has not failed validation before."""
    run = current_run(case)
    if run is None or not run.ready or run.instance == record.revalidated:
        return False
    evidence = case.node.evidence
    return evidence is None or evidence.passed or not covers_run(evidence, run)


def _failed_wait(case: NodeCase, record: NodeRecord) -> Wait:
    reason = f"the upgrade failed: {record.cause or 'no cause recorded'}"
    who: str | None = None
    if not case.pool.constraints.admits(record.target):
        reason += (
            f"; no retry while the target is halted: {case.pool.constraints.halted[record.target]}"
        )
        is_retried = has_retries(record, case.pool) and not case.node.failed_gpus
        who = FAILED_AND_RELEASED if is_retried else FAILED_AND_HALTED
    elif case.node.failed_gpus:
        reason += f"; no automatic retry now: {describe_failed_gpus(case.node.failed_gpus)}"
    elif is_shut_out(case.node):
        reason += "; the driver pod waits at the closed gate, so the node cannot recover by itself"
    return wait(WaitCode.FAILED, reason, case.now, who=who)


def is_unwanted(case: NodeCase) -> bool:
    return case.node.excluded or case.node.pool != case.pool.key


def is_unmanaged(case: NodeCase) -> bool:
    """Whether nothing on the node is ours, and nothing is wanted."""
    is_abandoned = case.pool.gone and not case.node.state
    return (
        case.record is None and not case.node.driver_label and (is_unwanted(case) or is_abandoned)
    )


def step_removal(case: NodeCase) -> NodeOutcome:
    """Remove the driver under a lease. Where none is installed, drop what we wrote at once."""
    if case.record is not None and not _has_driver(case.node, case.record):
        return write_step(
            case,
            NodeChange(
                because="the node should have no driver, and has none",
                record=None,
                cordon=cordon_at_release(case.node, case.record, proven=True),
                driver_label="",
                initially_cordoned=False,
            ),
        )
    failed = case.record is not None and case.record.state == UpgradeState.UPGRADE_FAILED
    if case.record is not None and failed and case.record.operation is Operation.REMOVE:
        retry = retry_automatically(case, case.record)
        return retry or wait(
            WaitCode.FAILED,
            f"the removal of the driver failed: {case.record.cause or 'no cause recorded'}",
            case.now,
        )
    return removal_candidate(case)


def _has_driver(node: NodeView, record: NodeRecord) -> bool:
    """Whether a driver of ours may be installed; the label can have been removed."""
    return bool(node.driver_label) or record.started or record.evidence is not None
