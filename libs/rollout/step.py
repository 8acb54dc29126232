"""The step of one node: what to do about it now, why it waits, or that it could start.

The phase of a node, as counted in the status of its pool's Rollout.
"""

from enum import StrEnum
from typing import Final

from libs.contracts.node import Operation, UpgradeState, WaitCode
from libs.contracts.rollout import Counts
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.edits import handle_edits
from libs.rollout.in_flight.start import begin
from libs.rollout.in_flight.step import step_in_flight
from libs.rollout.node_writes import current_record, upgrade_lease
from libs.rollout.pool.evaluation import PoolEvaluation
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import NO_ACTION_NEEDED, wait

_NEVER: Final = float("inf")


def next_wake(node: NodeView, outcome: NodeOutcome, due: float | None, now: float) -> float | None:
    """Return when the node has to be stepped again though nothing about it changes."""
    earliest = _NEVER if due is None or due <= now else due
    if outcome is None:
        return earliest if earliest < _NEVER else None
    for component in node.components.values():
        if now < component.silent_at < earliest:
            earliest = component.silent_at
    for at in _own_times(outcome):
        if at is not None and now < at < earliest:
            earliest = at
    return earliest if earliest < _NEVER else None


def _own_times(outcome: NodeOutcome) -> tuple[float | None, ...]:
    if isinstance(outcome, Wait):
        return (outcome.until,)
    if isinstance(outcome, Step):
        return (outcome.wake_at, outcome.wait.until if outcome.wait is not None else None)
    return ()


def constrain(
    node: NodeView, outcome: NodeOutcome, evaluation: PoolEvaluation, now: Instant
) -> NodeOutcome:
    if outcome is None:
        return None
    constraints = evaluation.constraints
    if constraints.frozen:
        return wait(
            WaitCode.FROZEN, "the Rollout is frozen (spec.brake: Freeze), or was a moment ago", now
        )
    if node.uid in evaluation.withdrawn:
        return withdrawn_entry_wait(evaluation, now)
    if isinstance(outcome, Wait):
        return outcome
    if not constraints.leading:
        detail = "a new scheduler leads, and its epoch is not yet recorded in the Rollout"
        return wait(WaitCode.STALE, detail, now, who=NO_ACTION_NEEDED)
    if isinstance(outcome, Step):
        return _constrain_step(node, outcome, evaluation, now)
    return _constrain_candidate(node, outcome, evaluation, now)


def _constrain_step(
    node: NodeView, step: Step, evaluation: PoolEvaluation, now: Instant
) -> NodeOutcome:
    if node.uid in evaluation.retargeted:
        detail = "the policy wants another target; the change is being recorded in the Rollout"
        return wait(WaitCode.PROOF, detail, now, who=NO_ACTION_NEEDED)
    return step


def _constrain_candidate(
    node: NodeView, candidate: Candidate, evaluation: PoolEvaluation, now: Instant
) -> NodeOutcome:
    if node.uid in evaluation.stored.in_flight:
        return withdrawn_entry_wait(evaluation, now)
    if not node.ready:
        return wait(WaitCode.NOT_READY, "the Node is not Ready", now)
    return candidate


def withdrawn_entry_wait(evaluation: PoolEvaluation, now: Instant) -> Wait:
    """Return the wait of a node whose entry in flight does not hold any more."""
    if evaluation.blocked_by is not None:
        return wait(
            evaluation.blocked_by.code,
            evaluation.blocked_by.detail,
            now,
            who=evaluation.blocked_by.who or None,
        )
    return wait(
        WaitCode.BUDGET,
        "the granted start is being withdrawn from the Rollout",
        now,
        who=NO_ACTION_NEEDED,
    )


def step(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """Handle edits by people first, then the upgrade in progress, then what the policy wants."""
    outcome = handle_edits(node, pool, now)
    if outcome is not None:
        return outcome
    if upgrade_lease(node) is not None:
        return step_in_flight(node, pool, now)
    outcome = step_at_rest(node, pool, now)
    entry = pool.constraints.in_flight.get(node.uid)
    if entry is not None and isinstance(outcome, Candidate):
        return begin(node, outcome, entry, pool, now)
    return outcome


_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED


_RECORD_LOST, _SKIPPED = WaitCode.RECORD_LOST, WaitCode.SKIPPED


class NodePhase(StrEnum):
    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXCLUDED = "excluded"
    WAITING = "waiting"


def phase_of(node: NodeView, pool: PoolView, outcome: NodeOutcome) -> NodePhase:
    if outcome is None:
        return NodePhase.EXCLUDED if node.excluded else NodePhase.DONE
    if node.lease is not None and upgrade_lease(node) is not None:
        record = current_record(node)
        if record is not None and record.operation is Operation.VALIDATE and record.evidence:
            return NodePhase.DONE
        return NodePhase.UNDER_WAY
    if node.excluded:
        return NodePhase.WAITING if node.driver_label else NodePhase.EXCLUDED
    if node.state == _FAILED:
        return NodePhase.FAILED
    code = outcome.code if isinstance(outcome, Wait) else None
    if node.state == _DONE and code is not _RECORD_LOST:
        build = pool.build(pool.target, node.variant)
        if build is not None and node.driver_label == build.label:
            return NodePhase.DONE
    return NodePhase.SKIPPED if code is _SKIPPED or node.skip else NodePhase.WAITING


def rollout_counts(phases: dict[NodePhase, int]) -> Counts:
    return Counts(
        total=sum(phases.values()),
        done=phases[NodePhase.DONE],
        failed=phases[NodePhase.FAILED],
        skipped=phases[NodePhase.SKIPPED],
        excluded=phases[NodePhase.EXCLUDED],
        waiting=phases[NodePhase.WAITING],
    )
