"""Notices and waits about edits and requests, with the name of their field manager."""

from collections.abc import Iterator

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, NodeRecord, WaitCode
from libs.rollout.decision import Notice, NoticeKind, Wait
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.wait_reasons import wait


def field_writer(node: NodeView, field: NodeField) -> str:
    """Return the manager that wrote this field last; a removal leaves no name."""
    others = node.other_managers(field)
    return node.last_managers.get(field) or (others[-1] if others else "an unknown manager")


def edit_notice(
    node: NodeView, field: NodeField, *, before: str, after: str, message: str
) -> Notice:
    return Notice(
        kind=NoticeKind.EDIT,
        field=field.value,
        manager=field_writer(node, field),
        before=before,
        after=after,
        message=message,
    )


def request_notice(node: NodeView, field: NodeField, asked: str, message: str) -> Notice:
    return Notice(
        kind=NoticeKind.REQUEST,
        field=field.value,
        manager=field_writer(node, field),
        after=asked,
        message=message,
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
    resolver = f"{who}, by restoring the value; then an administrator, by a retry"
    return wait(WaitCode.LABEL_EDITED, detail, now, who=resolver)


def _differences(node: NodeView, record: NodeRecord) -> Iterator[tuple[NodeField, str, str, str]]:
    if node.state != record.state:
        yield NodeField.STATE, STATE_LABEL, node.state, record.state
    in_flight = record.started and upgrade_lease(node) is not None
    if in_flight and node.driver_label != record.label:
        yield NodeField.DRIVER, DRIVER_LABEL, node.driver_label, record.label
