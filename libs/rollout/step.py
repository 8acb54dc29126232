"""The step of one node: what to do about it now, why it waits, or that it could start.

A step is decided by the node and the constraints of its pool; `step_in_pool` also withholds what
the pool does not allow now.
"""

from enum import StrEnum
from typing import NamedTuple

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.edits import handle_edits
from libs.rollout.in_flight.begin import begin
from libs.rollout.in_flight.step import step_in_flight
from libs.rollout.limits import stale_source
from libs.rollout.node_case import NodeCase
from libs.rollout.pool.contribution import UNBEGUN_SECONDS
from libs.rollout.pool.evaluation import PoolEvaluation
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait

_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_INSTALLER = "an administrator, by installing the CustomResourceDefinition"
_RECORD_LOST, _SKIPPED, _STALE = WaitCode.RECORD_LOST, WaitCode.SKIPPED, WaitCode.STALE
_GPU_FAILED = WaitCode.GPU_FAILED
_KEPT_ENTRY = (
    f"the place of the node is kept for {UNBEGUN_SECONDS:.0f} s, because the write that begins its"
    " upgrade was not answered and may still take effect"
)


class NodePhase(StrEnum):
    """The phase of a node, as counted in the status of its pool's Rollout."""

    IN_FLIGHT = "under way"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXCLUDED = "excluded"
    WAITING = "waiting"


class StepInPool(NamedTuple):
    outcome: NodeOutcome
    phase: NodePhase
    leased: bool
    """The node has a lease of an upgrade."""
    is_stale: bool
    """The node waits for current data: its wait changes with time."""


def step_in_pool(
    node: NodeView, pool: PoolView, evaluation: PoolEvaluation, now: Instant
) -> StepInPool:
    """Step the node as far as its pool allows now."""
    lease = None if node.lease is None else node.upgrade_lease
    case = NodeCase(node=node, pool=pool, now=now, record=node.current_record, lease=lease)
    outcome, leased = step(case), lease is not None
    phase = phase_of(case, outcome, leased=leased)
    if outcome is None:
        return StepInPool(None, phase, leased, is_stale=False)
    wait = outcome.wait if isinstance(outcome, Step) else outcome
    is_stale = isinstance(wait, Wait) and wait.code is _STALE
    is_stale = is_stale and (isinstance(outcome, Step) or bool(stale_source(now)))
    return StepInPool(constrain(node, outcome, evaluation, now), phase, leased, is_stale)


def step(case: NodeCase) -> NodeOutcome:
    """Handle edits by people first, then the upgrade in progress, then what the policy wants.

    People come first because what they did may make the record untrue, on which all else rests.
    """
    outcome = handle_edits(case)
    if outcome is not None:
        return outcome
    if case.lease is not None:
        return step_in_flight(case)
    outcome = step_at_rest(case)
    entry = case.pool.constraints.in_flight.get(case.node.uid)
    if entry is not None and isinstance(outcome, Candidate):
        return begin(case, outcome, entry)
    return outcome


def constrain(
    node: NodeView, outcome: Step | Wait | Candidate, evaluation: PoolEvaluation, now: Instant
) -> Step | Wait | Candidate:
    """Replace the outcome by a wait if the pool does not allow it now."""
    constraints = evaluation.constraints
    if constraints.frozen:
        if isinstance(outcome, Wait) and outcome.code is _SKIPPED:
            return outcome  # the end of the freeze would not let it start either
        return wait(WaitCode.FROZEN, constraints.frozen, now)
    if node.uid in evaluation.withdrawn:
        return withdrawn_entry_wait(evaluation, now)
    if node.uid in evaluation.kept and evaluation.blocked_by is not None:
        reason = evaluation.blocked_by
        detail = f"{reason.detail}; {_KEPT_ENTRY}"
        return reason._replace(detail=detail).wait(now.at)
    if isinstance(outcome, Wait):
        return outcome
    if missing := now.visibility.no_rollouts:
        return wait(WaitCode.STALE, missing, now, who=_INSTALLER)
    if not constraints.leading:
        detail = "a new scheduler leads, and its epoch is not yet recorded in the Rollout"
        return wait(WaitCode.STALE, detail, now, who=ITSELF)
    if isinstance(outcome, Step):
        if node.uid not in evaluation.retargeted:
            return outcome
        detail = "the policy wants another target; the change is being recorded in the Rollout"
        return wait(WaitCode.PROOF, detail, now, who=ITSELF)
    if node.uid in evaluation.stored.in_flight:
        return withdrawn_entry_wait(evaluation, now)
    return outcome if node.ready else wait(WaitCode.NOT_READY, "the Node is not Ready", now)


def withdrawn_entry_wait(evaluation: PoolEvaluation, now: Instant) -> Wait:
    """Return the wait of a node with an entry in flight that is no longer valid."""
    if evaluation.blocked_by is not None:
        return evaluation.blocked_by.wait(now.at)
    detail = "the granted start is being withdrawn from the Rollout"
    return wait(WaitCode.BUDGET, detail, now, who=ITSELF)


def phase_of(case: NodeCase, outcome: NodeOutcome, *, leased: bool) -> NodePhase:
    node, pool = case.node, case.pool
    if outcome is None:
        return NodePhase.EXCLUDED if node.excluded else NodePhase.DONE
    if leased:
        record = case.record
        if record is not None and record.operation is Operation.VALIDATE and record.evidence:
            return NodePhase.DONE
        return NodePhase.IN_FLIGHT
    if node.excluded:
        return NodePhase.WAITING if node.driver_label else NodePhase.EXCLUDED
    if node.state == _FAILED:
        return NodePhase.FAILED
    code = outcome.code if isinstance(outcome, Wait) else None
    if node.state == _DONE and code is not _RECORD_LOST:
        build = pool.build(pool.target, node.variant)
        if build is not None and node.driver_label == build.label:
            return NodePhase.DONE
    if code is _GPU_FAILED:
        return NodePhase.EXCLUDED
    return NodePhase.SKIPPED if code is _SKIPPED or node.skip else NodePhase.WAITING
