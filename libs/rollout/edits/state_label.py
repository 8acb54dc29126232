"""The state label differs from the record (docs/states.md#people).

On a done or failed node `upgrade-required` requests a retry. Any other edit is reverted, once per
attempt.
"""

from msgspec.structs import replace

from libs.contracts.node import REQUESTED_ANNOTATION, STATE_LABEL, NodeRecord, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.at_rest.state_writes import mark_required, owned_label
from libs.rollout.decision import Step, Wait
from libs.rollout.edits.notices import edit_notice, field_writer, request_notice, second_edit_wait
from libs.rollout.node_writes import (
    current_lease,
    needs_cordon,
    unchanged_cordon,
    upgrade_lease,
    write_step,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait

ENDED_STATES = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)


def handle_edit(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> Step | Wait | None:
    if node.state == record.state:
        return None
    if now.visibility.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, now.visibility.foreign_operator, now)
    if record.state in ENDED_STATES and node.state == UpgradeState.UPGRADE_REQUIRED:
        return retry(node, record, pool, now, NodeField.STATE)
    if record.edits:
        return second_edit_wait(node, record, now)
    return _restore(node, record, now)


def retry(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant, field: NodeField
) -> Step:
    """Begin a new attempt on request of a person, whatever the evidence is."""
    manager = field_writer(node, field)
    message = f"{manager} requested another upgrade of a node in {record.state}"
    return mark_required(
        node,
        record,
        pool,
        now,
        message,
        notes=(request_notice(node, field, UpgradeState.UPGRADE_REQUIRED.value, message),),
        cleared=(REQUESTED_ANNOTATION,) if node.requested else (),
        asked=True,
        cause=f"requested by {manager}",
        back_off_until=0.0,
        back_off_seconds=0.0,
    )


def _restore(node: NodeView, record: NodeRecord, now: Instant) -> Step:
    message = (
        f"{STATE_LABEL} was {f'set to {node.state}' if node.state else 'removed'}, and is restored"
        f" to {record.state}. To request another upgrade, set it to"
        f" upgrade-required on a node that is done or failed"
    )
    leased = upgrade_lease(node) is not None
    return write_step(
        node,
        replace(record, edits=record.edits + 1),
        now,
        because=f"restore the state label, edited by {field_writer(node, NodeField.STATE)}",
        lease=current_lease(node),
        cordon=True if leased and needs_cordon(record) else unchanged_cordon(node),
        driver_label=None if leased else owned_label(node, record),
        notes=(
            edit_notice(
                node, NodeField.STATE, before=record.state, after=node.state, message=message
            ),
        ),
    )
