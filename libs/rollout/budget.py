"""How many nodes of a pool may be unavailable, and which ones are (docs/states.md#budget)."""

from typing import Final

from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord, Operation, UpgradeState
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.shapes import scaled_value
from libs.rollout.views.node import NodeView

NON_DISRUPTIVE: Final = frozenset({Operation.BRING_UP, Operation.VALIDATE})
"""A lease for one of these operations does not make its node unavailable."""

_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_NEVER_DONE: Final = frozenset({Operation.BRING_UP, Operation.TAKE_OVER})


def unavailable_limit(upgrade: UpgradePolicy, *, base: int, present: int) -> int:
    """Return how many nodes may be unavailable; without a base, relative to the nodes present."""
    maximum = upgrade.max_unavailable
    if scaled_value(maximum, 100) == 0:
        return 0
    return max(1, scaled_value(maximum, min(base, present) if base else present))


def unavailable_reason(node: NodeView, record: NodeRecord | None) -> str:
    """Return why the node counts as unavailable; empty: it is available."""
    if node.lease is not None and _lowered_by_lease(node, record):
        return "in an upgrade" if _ours(node) else "leased"
    if node.state == _FAILED or (record is not None and record.state == _FAILED):
        return "failed"
    if not node.ready:
        return "not ready"
    if node.cordoned:
        return "cordoned"
    no_driver = node.loaded is None and node.modules_reported
    return "without a driver" if no_driver and _should_have(node, record) else ""


def counts_for_base(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node was done in this pool before: only then a joined node counts."""
    if node.state == _DONE:
        return True
    if record is None:
        return bool(node.driver_label)
    return bool(record.evidence or node.driver_label) and record.operation not in _NEVER_DONE


def _lowered_by_lease(node: NodeView, record: NodeRecord | None) -> bool:
    lease = node.lease
    if not isinstance(lease, NodeLease):
        return True
    if lease.node_uid != node.uid:
        return False
    return (
        lease.owner is not LeaseOwner.UPGRADE
        or record is None
        or record.operation not in NON_DISRUPTIVE
    )


def _ours(node: NodeView) -> bool:
    return isinstance(node.lease, NodeLease) and node.lease.owner is LeaseOwner.UPGRADE


def _should_have(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node had a driver or should run one; not during its first bring-up."""
    bring_up = record is not None and record.operation is Operation.BRING_UP
    if bring_up and node.lease is not None:
        return False
    return bool(node.driver_label) or (record is not None and record.evidence is not None)
