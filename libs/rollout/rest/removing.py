"""Nodes that are to have no driver of ours: excluded, or selected by this pool no more.

docs/states.md#v-remove.
"""

from libs.contracts.node import Operation, Record, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Outcome
from libs.rollout.rest import failing
from libs.rollout.rest.starting import remove
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import wait
from libs.rollout.writes import cordon_at_release, written


def unwanted(node: NodeView, pool: PoolView) -> bool:
    """Whether this pool's driver is to leave it."""
    return node.excluded or node.pool != pool.key


def nothing_of_ours(node: NodeView, record: Record | None, pool: PoolView) -> bool:
    """Whether there is nothing to be taken away, and nothing to be brought."""
    return record is None and not node.driver_label and (unwanted(node, pool) or pool.gone)


def leaving(node: NodeView, record: Record | None, pool: PoolView, now: Instant) -> Outcome:
    """The driver goes as it came, under a lease. Where none is, what we wrote goes at once."""
    if record is not None and not _has_driver(node, record):
        return written(
            node,
            None,
            now,
            because="it is to have no driver of ours, and has none",
            lease=None,
            cordon=cordon_at_release(node, record, proven=True),
            driver_label="",
            initially_cordoned=False,
        )
    failed = record is not None and record.state == UpgradeState.UPGRADE_FAILED
    if record is not None and failed and record.operation is Operation.REMOVE:
        again = failing.retried(node, record, pool, now)
        return again or wait(WaitCode.FAILED, record.cause or "its removal failed", now)
    return remove(node, record, pool, now)


def _has_driver(node: NodeView, record: Record) -> bool:
    """Whether a driver of ours may be on the machine; a label can have been stripped."""
    return bool(node.driver_label) or record.started or record.evidence is not None
