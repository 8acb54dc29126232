"""The driver label says something else than the record (docs/states.md#people).

Its pod is going already, or another one comes: nothing that was proven holds. It is stamped again,
on a node at rest by an operation of its own, after a back-off.
"""

from libs.contracts.node import DRIVER_LABEL, Record, UpgradeState
from libs.rollout.decision import Note, Step, Wait
from libs.rollout.edits.telling import edit, twice, writer
from libs.rollout.limits import backed_off
from libs.rollout.rest.removing import unwanted
from libs.rollout.rest.stamping import required
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Field, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import (
    back_to_restart,
    cordon_kept,
    cordons,
    lease_of,
    upgrading,
    written,
)


def edited(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Step | Wait | None:
    """What follows where label and record differ, and the label has to be right."""
    if node.driver_label == record.label:
        return None
    if record.state == UpgradeState.UPGRADE_DONE:
        return _at_rest(node, record, pool, now)
    if record.started and upgrading(node) is not None:
        return _in_flight(node, record, pool, now)
    return None


def _at_rest(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Step | None:
    if unwanted(node, pool) or pool.gone or now.sight.foreign_operator:
        return None
    who, pause = writer(node, Field.DRIVER), backed_off(record)
    return required(
        node,
        record,
        pool,
        now,
        f"its driver label was edited by {who}: it is stamped again, in {pause:.0f} s",
        notes=(_told(node, record),),
        cause=f"driver label edited by {who}",
        back_off_until=now.at + pause,
        back_off_seconds=pause,
    )


def _in_flight(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Step | Wait:
    if record.edits:
        return twice(node, record, now)
    who = writer(node, Field.DRIVER)
    return written(
        node,
        back_to_restart(node, record, pool, now, edits=record.edits + 1),
        now,
        because=f"its driver label was edited by {who}, and is stamped again",
        lease=lease_of(node),
        cordon=True if cordons(record) else cordon_kept(node),
        driver_label=record.label,
        notes=(_told(node, record),),
    )


def _told(node: NodeView, record: Record) -> Note:
    message = (
        f"{DRIVER_LABEL} was {node.driver_label or 'removed'}; its driver pod goes with it, so the"
        f" node is given {record.label or 'none'} again"
    )
    return edit(node, Field.DRIVER, before=record.label, after=node.driver_label, message=message)
