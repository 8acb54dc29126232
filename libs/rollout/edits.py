"""Edits and requests by people and other managers (docs/states.md#people).

Handled before anything else, for nodes with and without a lease. On a done or failed node the state
`upgrade-required` requests a retry. Any other edit of the state is reverted, once per attempt. An
edit of the driver label voids every proof, because its pod is being deleted, or another one
appears: it is restored, on a node at rest by an operation of its own, after a back-off.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.contracts.node import (
    DRIVER_LABEL,
    LABEL_EDITED_BY,
    MANAGER,
    STATE_LABEL,
    NodeRecord,
    UpgradeState,
    WaitCode,
)
from libs.rollout.at_rest import is_unwanted
from libs.rollout.decision import Notice, Step, Wait
from libs.rollout.limits import next_back_off
from libs.rollout.lost_record import (
    adopt_from_operator,
    handle_lost_record,
    loss_reason,
)
from libs.rollout.node_writes import (
    ENGINE_OWNERS,
    RESTING_STATES,
    current_lease,
    current_record,
    mark_required,
    needs_cordon,
    record_for_restart,
    unchanged_cordon,
    upgrade_lease,
    write_step,
)
from libs.rollout.notices import edit_notice, field_writer
from libs.rollout.requests import (
    ENDED_STATES,
    drop_needless_request,
    handle_forget_request,
    handle_upgrade_request,
    retry,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait

_RECORD = NodeField.RECORD


def handle_edits(node: NodeView, pool: PoolView, now: Instant) -> Step | Wait | None:
    """Return what follows from edits of the node; None: nothing was edited."""
    record = node.record
    if (
        type(record) is NodeRecord
        and node.lease is None
        and node.request is None
        and record.state == node.state
        and record.state in RESTING_STATES
        and record.label == node.driver_label
        and not node.requested
        and MANAGER in node.field_managers.get(_RECORD, (MANAGER,))
    ):
        return None  # the common case, tested first because it is cheap
    record = current_record(node)
    lease = current_lease(node)
    if lease is not None and lease.owner not in ENGINE_OWNERS:
        return None
    reason = loss_reason(node, record, pool)
    if reason:
        return handle_lost_record(node, pool, reason, now)
    if isinstance(node.lease, MalformedAnnotation):
        return None
    if record is None:
        return adopt_from_operator(node, pool, now) or drop_needless_request(node, None, pool, now)
    return (
        handle_state_label_edit(node, record, pool, now)
        or handle_upgrade_request(node, record, pool, now)
        or handle_forget_request(node, record, pool, now)
        or handle_driver_label_edit(node, record, pool, now)
        or drop_needless_request(node, record, pool, now)
    )


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
        cause=f"{LABEL_EDITED_BY}{manager}",
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


def second_edit_wait(node: NodeView, record: NodeRecord, now: Instant) -> Wait:
    """Return the wait after a second edit in one attempt, which is not reverted."""
    differences = list(_differences(node, record))
    who = " and ".join(dict.fromkeys(field_writer(node, field) for field, _, _, _ in differences))
    values = "; ".join(
        f"{key} is {actual or 'missing'} instead of {expected or 'empty'}"
        for _, key, actual, expected in differences
    )
    detail = f"edited a second time by {who}, so not restored in this attempt: {values}"
    resolver = f"the user of {who}, by restoring the value; then an administrator, by a retry"
    return wait(WaitCode.LABEL_EDITED, detail, now, who=resolver)


def _differences(node: NodeView, record: NodeRecord) -> Iterator[tuple[NodeField, str, str, str]]:
    if node.state != record.state:
        yield NodeField.STATE, STATE_LABEL, node.state, record.state
    in_flight = record.started and upgrade_lease(node) is not None
    if in_flight and node.driver_label != record.label:
        yield NodeField.DRIVER, DRIVER_LABEL, node.driver_label, record.label
