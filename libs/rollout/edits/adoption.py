"""Adoption of a node whose state comes from the GPU Operator (docs/states.md#people)."""

from libs.contracts.node import REQUEST_ANNOTATION, NodeRecord, NodeRequest, UpgradeState
from libs.rollout.at_rest.removal import is_unwanted
from libs.rollout.decision import Step
from libs.rollout.edits.lost_record import highest_token
from libs.rollout.edits.notices import edit_notice
from libs.rollout.node_writes import unchanged_cordon, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView

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
