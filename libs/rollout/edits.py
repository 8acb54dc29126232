"""Edits and requests by people and other managers (docs/states.md#people).

Handled before anything else, for nodes with and without a lease. On a done or failed node the state
`upgrade-required` requests a retry. Any other edit of the state is reverted, once per attempt. An
edit of the driver label voids every proof, because its pod is being deleted, or another one
appears: it is restored, on a node at rest by an operation of its own, after a back-off.

Requests by annotation are carried out once, then removed: `adopt` and `forget` where a record is
lost, `without-preflight` by the start that it permits.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.contracts.node import (
    DRIVER_LABEL,
    MANAGER,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeRecord,
    NodeRequest,
    UpgradeState,
    WaitCode,
)
from libs.rollout.at_rest import is_unwanted
from libs.rollout.decision import Notice, Step, Wait
from libs.rollout.limits import next_back_off
from libs.rollout.lost_record import (
    RESTING_STATES,
    adopt_from_operator,
    handle_lost_record,
    loss_reason,
)
from libs.rollout.node_writes import (
    current_lease,
    current_record,
    edit_notice,
    field_writer,
    mark_required,
    needs_cordon,
    owned_label,
    record_for_restart,
    request_notice,
    unchanged_cordon,
    upgrade_lease,
    write_step,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait

ENDED_STATES = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
_WAITING = (UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_FAILED)
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
    if lease is not None and lease.owner is not LeaseOwner.UPGRADE:
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


def consume_requests(node: NodeView) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """Return the requests that a starting upgrade carries out: keys to clear, and notices."""
    keys: list[str] = []
    notices: list[Notice] = []
    if node.request is NodeRequest.WITHOUT_PREFLIGHT:
        keys.append(REQUEST_ANNOTATION)
        notices.append(
            request_notice(
                node,
                NodeField.REQUEST,
                node.request.value,
                "the upgrade starts without a preflight check",
            )
        )
    if node.requested:
        keys.append(REQUESTED_ANNOTATION)
        notices.append(request_notice(node, NodeField.REQUESTED, "true", "the upgrade starts"))
    return tuple(keys), tuple(notices)


def handle_upgrade_request(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant
) -> Step | None:
    """Handle the annotation of the GPU Operator like the label `upgrade-required`."""
    if not node.requested or now.visibility.foreign_operator:
        return None
    if record.state not in (*ENDED_STATES, UpgradeState.UPGRADE_REQUIRED):
        return None
    return retry(node, record, pool, now, NodeField.REQUESTED)


def drop_needless_request(
    node: NodeView, record: NodeRecord | None, pool: PoolView, now: Instant
) -> Step | None:
    """Remove a request that does not apply, with the reason in an event."""
    reason = _needless_reason(node, record, pool)
    if not reason or node.request is None:
        return None
    label = (
        node.driver_label if record is None or upgrade_lease(node) else owned_label(node, record)
    )
    return write_step(
        node,
        record,
        now,
        because=f"the request {node.request.value} is removed: {reason}",
        lease=current_lease(node),
        cordon=unchanged_cordon(node),
        driver_label=label if record is not None or node.is_owned(NodeField.DRIVER) else "",
        cleared=(REQUEST_ANNOTATION,),
        notes=(request_notice(node, NodeField.REQUEST, node.request.value, reason),),
    )


def _needless_reason(node: NodeView, record: NodeRecord | None, pool: PoolView) -> str:
    match node.request:
        case NodeRequest.ADOPT | NodeRequest.FORGET:
            return "the upgrade record of this node is not lost"
        case NodeRequest.WITHOUT_PREFLIGHT if record is not None:
            if record.state == UpgradeState.UPGRADE_DONE:
                build = pool.build(pool.target, node.variant)
                in_place = build is not None and build.label == node.driver_label
                return "the node is not waiting for a preflight check" if in_place else ""
            return "" if record.state in _WAITING else "the upgrade has already started"
        case _:
            return ""


def second_edit_wait(node: NodeView, record: NodeRecord, now: Instant) -> Wait:
    """Return the wait after a second edit in one attempt, which is not reverted."""
    differences = list(_differences(node, record))
    who = " and ".join(dict.fromkeys(field_writer(node, field) for field, _, _, _ in differences))
    values = "; ".join(
        f"{key} is {actual or 'missing'} instead of {expected or 'empty'}"
        for _, key, actual, expected in differences
    )
    detail = f"edited a second time by {who}, so not restored in this attempt: {values}"
    resolver = f"{who}, by restoring the value; then an administrator, by a retry"
    return wait(WaitCode.LABEL_EDITED, detail, now, who=resolver)


def _differences(node: NodeView, record: NodeRecord) -> Iterator[tuple[NodeField, str, str, str]]:
    if node.state != record.state:
        yield NodeField.STATE, STATE_LABEL, node.state, record.state
    in_flight = record.started and upgrade_lease(node) is not None
    if in_flight and node.driver_label != record.label:
        yield NodeField.DRIVER, DRIVER_LABEL, node.driver_label, record.label
