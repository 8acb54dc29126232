"""Where a node is on its way, as the counts of its pool's Rollout tell it to people.

Must not know what is done about it.
"""

from enum import StrEnum

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.rollout import Counts
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Outcome, Wait
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import readable, upgrading

_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_LOST, _SKIPPED = WaitCode.RECORD_LOST, WaitCode.SKIPPED


class Place(StrEnum):
    """Each node is in one."""

    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXCLUDED = "excluded"
    WAITING = "waiting"


def place(node: NodeView, pool: PoolView, outcome: Outcome) -> Place:
    """Where the node is, whether or not something is done about it."""
    if outcome is None:
        return Place.EXCLUDED if node.excluded else Place.DONE
    if node.lease is not None and upgrading(node) is not None:
        record = readable(node)
        if record is not None and record.operation is Operation.VALIDATE and record.evidence:
            return Place.DONE
        return Place.UNDER_WAY
    if node.excluded:
        return Place.WAITING if node.driver_label else Place.EXCLUDED
    if node.state == _FAILED:
        return Place.FAILED
    code = outcome.code if isinstance(outcome, Wait) else None
    if node.state == _DONE and code is not _LOST:
        build = pool.build(pool.target, node.variant)
        if build is not None and node.driver_label == build.label:
            return Place.DONE
    return Place.SKIPPED if code is _SKIPPED or node.skip else Place.WAITING


def counts(places: dict[Place, int]) -> Counts:
    """All that follows from the places alone."""
    return Counts(
        total=sum(places.values()),
        done=places[Place.DONE],
        failed=places[Place.FAILED],
        skipped=places[Place.SKIPPED],
        excluded=places[Place.EXCLUDED],
        waiting=places[Place.WAITING],
    )
