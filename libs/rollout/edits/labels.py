"""Edits of the state label and the driver label (docs/states.md#people).

On a done or failed node the state `upgrade-required` requests a retry. Any other edit of it is
reverted, once per attempt. An edit of the driver label voids every proof, because its pod is being
deleted, or another one appears: it is restored, on a node at rest by an operation of its own, after
a back-off.
"""

from msgspec.structs import replace

from libs.contracts.node import (
    DRIVER_LABEL,
    REQUESTED_ANNOTATION,
    STATE_LABEL,
    NodeRecord,
    UpgradeState,
    WaitCode,
)
from libs.rollout.at_rest.dispatch import is_unwanted
from libs.rollout.at_rest.state_writes import mark_required, owned_label
from libs.rollout.decision import Notice, Step, Wait
from libs.rollout.edits.notices import edit_notice, field_writer, request_notice, second_edit_wait
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
from libs.rollout.wait_reasons import wait

ENDED_STATES = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)


def handle_state_label_edit(
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
    return _restore_state_label(node, record, now)


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


def _restore_state_label(node: NodeView, record: NodeRecord, now: Instant) -> Step:
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


def handle_driver_label_edit(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> Step | Wait | None:
    """Restore the label where it has to be right."""
    if node.driver_label == record.label:
        return None
    if record.state == UpgradeState.UPGRADE_DONE:
        return _restore_at_rest(node, record, pool, now)
    if record.started and upgrade_lease(node) is not None:
        return _restore_in_flight(node, record, pool, now)
    return None


def _restore_at_rest(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> Step | None:
    if is_unwanted(node, pool) or pool.gone or now.visibility.foreign_operator:
        return None
    manager, seconds = field_writer(node, NodeField.DRIVER), next_back_off(record)
    return mark_required(
        node,
        record,
        pool,
        now,
        f"restore the driver label, edited by {manager}, in {seconds:.0f} s",
        notes=(_driver_label_notice(node, record),),
        cause=f"driver label edited by {manager}",
        back_off_until=now.at + seconds,
        back_off_seconds=seconds,
    )


def _restore_in_flight(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> Step | Wait:
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
        notes=(_driver_label_notice(node, record),),
    )


def _driver_label_notice(node: NodeView, record: NodeRecord) -> Notice:
    message = (
        f"{DRIVER_LABEL} was {f'set to {node.driver_label}' if node.driver_label else 'removed'},"
        f" which deletes the driver pod; it is restored to {record.label or 'no value'}"
    )
    return edit_notice(
        node, NodeField.DRIVER, before=record.label, after=node.driver_label, message=message
    )
