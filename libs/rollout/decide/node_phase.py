"""The phase of a node, as counted in the status of its pool's Rollout."""

from enum import StrEnum

from libs.contracts.node import Operation, UpgradeState, WaitCode
from libs.contracts.rollout import Counts
from libs.rollout.decision import NodeOutcome, Wait
from libs.rollout.node_writes import current_record, upgrade_lease
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

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
