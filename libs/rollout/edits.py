"""Edits and requests by people and other managers (docs/states.md#people).

Handled before anything else, for nodes with and without a lease. On a done or failed node the state
`upgrade-required` requests a retry. Any other edit of the state is reverted, once per attempt. An
edit of the driver label voids every proof, because its pod is being deleted, or another one
appears: it is restored, on a node at rest by an operation of its own, after a back-off.
"""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from libs.contracts.node import (
    DRIVER_LABEL,
    LABEL_EDITED_BY,
    MANAGER,
    STATE_LABEL,
    NodeRecord,
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from libs.rollout.at_rest import is_unwanted
from libs.rollout.cordons import needs_cordon
from libs.rollout.decision import Notice, Step, Wait
from libs.rollout.limits import next_back_off
from libs.rollout.lost_record import (
    adopt_from_operator,
    handle_lost_record,
    loss_reason,
)
from libs.rollout.node_case import NodeCase
from libs.rollout.node_writes import (
    RESTING_STATES,
    NodeChange,
    mark_required,
    record_for_restart,
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
from libs.rollout.views.node import ENGINE_OWNERS, MalformedAnnotation, NodeField, NodeView
from libs.rollout.wait_reasons import wait

_RECORD = NodeField.RECORD


def handle_edits(case: NodeCase) -> Step | Wait | None:
    """Return what follows from edits of the node; None: nothing was edited.

    A lost record comes first, because the other answers rest on the record; a request for an
    upgrade before the driver label, because the upgrade sets the label anyway.
    """
    record = case.node.record
    if (
        type(record) is NodeRecord
        and case.node.lease is None
        and case.node.request is None
        and record.state == case.node.state
        and record.state in RESTING_STATES
        and record.label == case.node.driver_label
        and not case.node.requested
        and MANAGER in case.node.field_managers.get(_RECORD, (MANAGER,))
    ):
        return None  # the common case, tested first because it is cheap
    record, lease = case.record, case.node.current_lease
    if lease is not None and lease.owner not in ENGINE_OWNERS:
        return None
    reason = loss_reason(case)
    if reason:
        return handle_lost_record(case, reason)
    if isinstance(case.node.lease, MalformedAnnotation):
        return None
    if record is None:
        return adopt_from_operator(case) or drop_needless_request(case)
    return (
        handle_state_label_edit(case, record)
        or handle_upgrade_request(case, record)
        or handle_forget_request(case, record)
        or handle_driver_label_edit(case, record)
        or drop_needless_request(case)
    )


def handle_state_label_edit(case: NodeCase, record: NodeRecord) -> Step | Wait | None:
    if case.node.state == record.state:
        return None
    if case.now.visibility.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, case.now.visibility.foreign_operator, case.now)
    if record.state in ENDED_STATES and case.node.state == UpgradeState.UPGRADE_REQUIRED:
        return retry(case, record, NodeField.STATE)
    if record.edits:
        return second_edit_wait(case, record)
    return _restore_state_label(case, record)


def _restore_state_label(case: NodeCase, record: NodeRecord) -> Step:
    node = case.node
    message = (
        f"{STATE_LABEL} was {f'set to {node.state}' if node.state else 'removed'}, and is restored"
        f" to {record.state}. To request another upgrade, set it to"
        f" upgrade-required on a node that is done or failed"
    )
    notice = edit_notice(
        node, NodeField.STATE, before=record.state, after=node.state, message=message
    )
    leased = case.lease is not None
    change = NodeChange(
        because=f"restore the state label, edited by {field_writer(node, NodeField.STATE)}",
        record=replace(record, edits=record.edits + 1),
        cordon=True if leased and needs_cordon(record) else UNSET,
        notes=(notice,),
    )
    return write_step(case, change)


def handle_driver_label_edit(case: NodeCase, record: NodeRecord) -> Step | Wait | None:
    """Restore the label where it has to be right."""
    if case.node.driver_label == record.label:
        return None
    if record.state == UpgradeState.UPGRADE_DONE:
        return _restore_at_rest(case, record)
    if record.started and case.lease is not None:
        return _restore_in_flight(case, record)
    return None


def _restore_at_rest(case: NodeCase, record: NodeRecord) -> Step | None:
    if is_unwanted(case) or case.pool.gone or case.now.visibility.foreign_operator:
        return None
    manager, seconds = field_writer(case.node, NodeField.DRIVER), next_back_off(record)
    return mark_required(
        case,
        record,
        f"restore the driver label, edited by {manager}, in {seconds:.0f} s",
        notes=(_driver_label_notice(case.node, record),),
        cause=f"{LABEL_EDITED_BY}{manager}",
        back_off_until=case.now.at + seconds,
        back_off_seconds=seconds,
    )


def _restore_in_flight(case: NodeCase, record: NodeRecord) -> Step | Wait:
    if record.edits:
        return second_edit_wait(case, record)
    manager = field_writer(case.node, NodeField.DRIVER)
    return write_step(
        case,
        NodeChange(
            because=f"restore the driver label, edited by {manager}",
            record=record_for_restart(case, record, edits=record.edits + 1),
            cordon=True if needs_cordon(record) else UNSET,
            driver_label=record.label,
            notes=(_driver_label_notice(case.node, record),),
        ),
    )


def _driver_label_notice(node: NodeView, record: NodeRecord) -> Notice:
    message = (
        f"{DRIVER_LABEL} was {f'set to {node.driver_label}' if node.driver_label else 'removed'},"
        f" which deletes the driver pod; it is restored to {record.label or 'no value'}"
    )
    return edit_notice(
        node, NodeField.DRIVER, before=record.label, after=node.driver_label, message=message
    )


def second_edit_wait(case: NodeCase, record: NodeRecord) -> Wait:
    """Return the wait after a second edit in one attempt, which is not reverted."""
    differences = list(_differences(case.node, record))
    who = " and ".join(
        dict.fromkeys(field_writer(case.node, field) for field, _, _, _ in differences)
    )
    values = "; ".join(
        f"{key} is {actual or 'missing'} instead of {expected or 'empty'}"
        for _, key, actual, expected in differences
    )
    detail = f"edited a second time by {who}, so not restored in this attempt: {values}"
    resolver = f"the user of {who}, by restoring the value; then an administrator, by a retry"
    return wait(WaitCode.LABEL_EDITED, detail, case.now, who=resolver)


def _differences(node: NodeView, record: NodeRecord) -> Iterator[tuple[NodeField, str, str, str]]:
    if node.state != record.state:
        yield NodeField.STATE, STATE_LABEL, node.state, record.state
    in_flight = record.started and node.upgrade_lease is not None
    if in_flight and node.driver_label != record.label:
        yield NodeField.DRIVER, DRIVER_LABEL, node.driver_label, record.label
