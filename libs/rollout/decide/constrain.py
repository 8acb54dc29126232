"""Constraints of the pool on the outcome of a node: frozen, no leader, or grant withdrawn."""

from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.reconcile.evaluation import PoolEvaluation
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import NO_ACTION_NEEDED, wait


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
        return _step(node, outcome, evaluation, now)
    return _candidate(node, outcome, evaluation, now)


def _step(node: NodeView, step: Step, evaluation: PoolEvaluation, now: Instant) -> NodeOutcome:
    if node.uid in evaluation.retargeted:
        detail = "the policy wants another target; the change is being recorded in the Rollout"
        return wait(WaitCode.PROOF, detail, now, who=NO_ACTION_NEEDED)
    return step


def _candidate(
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
            who=evaluation.blocked_by.who,
        )
    return wait(
        WaitCode.BUDGET,
        "the granted start is being withdrawn from the Rollout",
        now,
        who=NO_ACTION_NEEDED,
    )
