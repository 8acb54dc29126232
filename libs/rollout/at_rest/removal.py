"""Nodes that should have no driver of ours: excluded, or no longer selected by this pool.

docs/states.md#v-remove
"""

from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.at_rest import failed_node
from libs.rollout.at_rest.eligibility import removal_candidate
from libs.rollout.decision import NodeOutcome
from libs.rollout.node_writes import cordon_at_release, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait


def is_unwanted(node: NodeView, pool: PoolView) -> bool:
    return node.excluded or node.pool != pool.key


def has_nothing_of_ours(node: NodeView, record: NodeRecord | None, pool: PoolView) -> bool:
    return record is None and not node.driver_label and (is_unwanted(node, pool) or pool.gone)


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
        retry = failed_node.retry_automatically(node, record, pool, now)
        return retry or wait(
            WaitCode.FAILED,
            f"the removal of the driver failed: {record.cause or 'no cause recorded'}",
            now,
        )
    return removal_candidate(node, record, pool, now)


def _has_driver(node: NodeView, record: NodeRecord) -> bool:
    """Whether a driver of ours may be installed; the label can have been removed."""
    return bool(node.driver_label) or record.started or record.evidence is not None
