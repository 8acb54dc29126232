"""Requests by annotation: carried out once, then removed (docs/states.md#people).

`adopt` and `forget` are handled where a record is lost, `without-preflight` by the start that it
permits.
"""

from libs.contracts.node import (
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    NodeRecord,
    NodeRequest,
    UpgradeState,
)
from libs.rollout.at_rest.state_writes import owned_label
from libs.rollout.decision import Notice, Step
from libs.rollout.edits.labels import ENDED_STATES, retry
from libs.rollout.edits.notices import request_notice
from libs.rollout.node_writes import current_lease, unchanged_cordon, upgrade_lease, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView

_WAITING = (UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_FAILED)


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
    """Remove a request that does not apply, and say why."""
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
