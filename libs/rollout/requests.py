"""Requests of people by annotation: carried out once, then removed (docs/states.md#people).

`adopt` and `forget` are carried out where a record is lost, `forget` also where an upgrade failed,
`without-preflight` by the start that it permits. The GPU Operator's annotation asks for an upgrade.
"""

from libs.contracts.node import (
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    REQUESTED_BY,
    NodeRecord,
    NodeRequest,
    UpgradeState,
    user_of,
)
from libs.rollout.decision import Notice, Step
from libs.rollout.lost_record import forget
from libs.rollout.node_case import NodeCase
from libs.rollout.node_writes import NodeChange, mark_required, write_step
from libs.rollout.notices import field_writer, request_notice
from libs.rollout.views.node import NodeField, NodeView

ENDED_STATES = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
_WAITING = (UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_FAILED)


def retry(case: NodeCase, record: NodeRecord, field: NodeField) -> Step:
    """Begin a new attempt on request of a person, whatever the evidence is."""
    person = user_of(field_writer(case.node, field))
    message = f"{person} requested another upgrade of a node in {record.state}"
    return mark_required(
        case,
        record,
        message,
        notes=(request_notice(case.node, field, UpgradeState.UPGRADE_REQUIRED.value, message),),
        cleared=(REQUESTED_ANNOTATION,) if case.node.requested else (),
        asked=True,
        cause=f"{REQUESTED_BY}{person}",
        back_off_until=0.0,
        back_off_seconds=0.0,
    )


def handle_upgrade_request(case: NodeCase, record: NodeRecord) -> Step | None:
    """Handle the annotation of the GPU Operator like the label `upgrade-required`."""
    if not case.node.requested or case.now.visibility.foreign_operator:
        return None
    if record.state not in (*ENDED_STATES, UpgradeState.UPGRADE_REQUIRED):
        return None
    return retry(case, record, NodeField.REQUESTED)


def handle_forget_request(case: NodeCase, record: NodeRecord) -> Step | None:
    """Give up a failed node on request: it stays cordoned, and begins anew."""
    has_failed = record.state == case.node.state == UpgradeState.UPGRADE_FAILED
    if case.node.request is not NodeRequest.FORGET or not has_failed or case.node.lease is not None:
        return None
    return forget(case)


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


def drop_needless_request(case: NodeCase) -> Step | None:
    """Remove a request that does not apply, with the reason in an event."""
    reason = _needless_reason(case)
    if not reason or case.node.request is None:
        return None
    return write_step(
        case,
        NodeChange(
            because=f"the request {case.node.request.value} is removed: {reason}",
            record=case.record,
            cleared=(REQUEST_ANNOTATION,),
            notes=(request_notice(case.node, NodeField.REQUEST, case.node.request.value, reason),),
        ),
    )


def _needless_reason(case: NodeCase) -> str:
    match case.node.request:
        case NodeRequest.FORGET if case.record is not None and case.lease is not None:
            return "an upgrade is in progress: a node can be forgotten once it has failed"
        case NodeRequest.ADOPT | NodeRequest.FORGET:
            return "the upgrade record of this node is not lost"
        case NodeRequest.WITHOUT_PREFLIGHT if case.record is not None:
            if case.record.state == UpgradeState.UPGRADE_DONE:
                build = case.pool.build(case.pool.target, case.node.variant)
                in_place = build is not None and build.label == case.node.driver_label
                return "the node is not waiting for a preflight check" if in_place else ""
            return "" if case.record.state in _WAITING else "the upgrade has already started"
        case _:
            return ""
