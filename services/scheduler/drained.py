"""How long a node was drained for an upgrade, and how long of that an image was pulled. Pure."""

from typing import NamedTuple

from libs.contracts.node import Operation, UpgradeState
from libs.rollout.cordons import needs_cordon
from libs.rollout.decision import NodeApplyConfiguration
from libs.rollout.node_writes import current_driver_pod
from libs.rollout.views.node import NodeView


class DrainedSeconds(NamedTuple):
    total: float
    pulling: float
    """Those that passed while the driver's image was pulled."""


def drained_seconds(
    node: NodeView | None, applied: NodeApplyConfiguration, *, now: float
) -> DrainedSeconds | None:
    """Return the seconds if this write ends an upgrade for which the node was cordoned.

    They begin with the cordon, which is written with the lease.
    """
    if node is None or applied.state != UpgradeState.UPGRADE_DONE or applied.lease is not None:
        return None
    record, lease = node.current_record, node.upgrade_lease
    if record is None or lease is None or not (record.started and needs_cordon(record)):
        return None
    if record.operation is Operation.MIG:
        return None
    pod, total = current_driver_pod(node), max(0.0, now - lease.since)
    pulling = 0.0 if pod is None or pod.pulled is None else min(pod.pulled, total)
    return DrainedSeconds(total, pulling)
