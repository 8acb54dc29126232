"""The driver label differs from the record (docs/states.md#people).

Its pod is being deleted, or another one appears: no proof holds. The label is restored; on a node
at rest by an operation of its own, after a back-off.
"""

from libs.contracts.node import DRIVER_LABEL, NodeRecord, UpgradeState
from libs.rollout.at_rest.removal import is_unwanted
from libs.rollout.at_rest.state_writes import mark_required
from libs.rollout.decision import Notice, Step, Wait
from libs.rollout.edits.notices import edit_notice, field_writer, second_edit_wait
from libs.rollout.limits import next_back_off
from libs.rollout.node_writes import (
    current_lease,
    needs_cordon,
    record_for_restart,
    unchanged_cordon,
    upgrade_lease,
    write_step,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView


def handle_edit(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> Step | Wait | None:
    """Restore the label where it has to be right."""
    if node.driver_label == record.label:
        return None
    if record.state == UpgradeState.UPGRADE_DONE:
        return _at_rest(node, record, pool, now)
    if record.started and upgrade_lease(node) is not None:
        return _in_flight(node, record, pool, now)
    return None


def _at_rest(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> Step | None:
    if is_unwanted(node, pool) or pool.gone or now.visibility.foreign_operator:
        return None
    manager, seconds = field_writer(node, NodeField.DRIVER), next_back_off(record)
    return mark_required(
        node,
        record,
        pool,
        now,
        f"restore the driver label, edited by {manager}, in {seconds:.0f} s",
        notes=(_notice(node, record),),
        cause=f"driver label edited by {manager}",
        back_off_until=now.at + seconds,
        back_off_seconds=seconds,
    )


def _in_flight(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> Step | Wait:
    if record.edits:
        return second_edit_wait(node, record, now)
    manager = field_writer(node, NodeField.DRIVER)
    return write_step(
        node,
        record_for_restart(node, record, pool, now, edits=record.edits + 1),
        now,
        because=f"restore the driver label, edited by {manager}",
        lease=current_lease(node),
        cordon=True if needs_cordon(record) else unchanged_cordon(node),
        driver_label=record.label,
        notes=(_notice(node, record),),
    )


def _notice(node: NodeView, record: NodeRecord) -> Notice:
    message = (
        f"{DRIVER_LABEL} was {f'set to {node.driver_label}' if node.driver_label else 'removed'},"
        f" which deletes the driver pod; it is restored to {record.label or 'no value'}"
    )
    return edit_notice(
        node, NodeField.DRIVER, before=record.label, after=node.driver_label, message=message
    )
