"""The order in which edits are handled."""

from libs.contracts.node import MANAGER, REQUEST_ANNOTATION, NodeRecord, NodeRequest, UpgradeState
from libs.rollout.at_rest.dispatch import is_unwanted
from libs.rollout.decision import Step, Wait
from libs.rollout.edits import labels, lost_record, requests
from libs.rollout.edits.lost_record import highest_token
from libs.rollout.edits.notices import edit_notice
from libs.rollout.node_writes import (
    current_lease,
    current_record,
    unchanged_cordon,
    upgrade_lease,
    write_step,
)
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
    reason = lost_record.loss_reason(node, record, pool)
    if reason:
        return lost_record.handle_lost_record(node, pool, reason, now)
    if isinstance(node.lease, MalformedAnnotation):
        return None
    if record is None:
        return adopt_from_operator(node, pool, now) or requests.drop_needless_request(
            node, None, pool, now
        )
    return (
        labels.handle_state_label_edit(node, record, pool, now)
        or requests.handle_upgrade_request(node, record, pool, now)
        or labels.handle_driver_label_edit(node, record, pool, now)
        or requests.drop_needless_request(node, record, pool, now)
    )


_UNCORDONED = frozenset(
    {UpgradeState.UPGRADE_REQUIRED, UpgradeState.CORDON_REQUIRED, UpgradeState.UPGRADE_DONE}
)
"""States in which that operator has not cordoned the node, or has uncordoned it."""


def adopt_from_operator(node: NodeView, pool: PoolView, now: Instant) -> Step | None:
    """Take the node over in `upgrade-required`, with the cordon of that operator."""
    if not node.state or isinstance(node.record, NodeRecord) or now.visibility.foreign_operator:
        return None
    if is_unwanted(node, pool) or pool.gone or not pool.constraints.may_mark_required:
        return None
    cordon_adopted = node.cordoned and not node.initially_cordoned and node.state not in _UNCORDONED
    record = NodeRecord(
        node_uid=node.uid,
        epoch=now.epoch,
        token=highest_token(node, pool),
        pool=pool.key,
        state=UpgradeState.UPGRADE_REQUIRED.value,
        since=now.at,
        boot_id=node.boot_id,
        cause=f"adopted in {node.state}",
        cordon_adopted=cordon_adopted,
    )
    message = f"another operator left the node in {node.state}; Sluice takes it over"
    return write_step(
        node,
        record,
        now,
        because=message,
        lease=None,
        cordon=True if cordon_adopted else unchanged_cordon(node),
        driver_label="",
        cleared=(REQUEST_ANNOTATION,) if node.request is NodeRequest.ADOPT else (),
        notes=(
            edit_notice(
                node, NodeField.STATE, before=node.state, after=record.state, message=message
            ),
        ),
    )
