"""The order in which edits are handled."""

from libs.contracts.node import MANAGER, NodeRecord
from libs.rollout.decision import Step, Wait
from libs.rollout.edits import adoption, driver_label, lost_record, requests, state_label
from libs.rollout.node_writes import current_lease, current_record, upgrade_lease
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView

_RECORD = NodeField.RECORD


def handle_edits(node: NodeView, pool: PoolView, now: Instant) -> Step | Wait | None:
    """Return what follows from edits of the node; None: nothing was edited."""
    record = node.record
    if (
        type(record) is NodeRecord
        and node.lease is None
        and node.request is None
        and record.state == node.state
        and record.state in lost_record.RESTING_STATES
        and record.label == node.driver_label
        and not node.requested
        and (MANAGER in node.field_managers.get(_RECORD, (MANAGER,)))
    ):
        return None
    return _dispatch(node, pool, now)


def _dispatch(node: NodeView, pool: PoolView, now: Instant) -> Step | Wait | None:
    record = current_record(node)
    if current_lease(node) is not None and upgrade_lease(node) is None:
        return None
    why = lost_record.loss_reason(node, record, pool)
    if why:
        return lost_record.handle_lost_record(node, pool, why, now)
    if isinstance(node.lease, MalformedAnnotation):
        return None
    if record is None:
        return adoption.adopt_from_operator(node, pool, now) or requests.drop_needless_request(
            node, None, pool, now
        )
    return (
        state_label.handle_edit(node, record, pool, now)
        or requests.handle_upgrade_request(node, record, pool, now)
        or driver_label.handle_edit(node, record, pool, now)
        or requests.drop_needless_request(node, record, pool, now)
    )
