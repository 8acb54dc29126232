"""In which order edits are looked at: `edits`. A node that nobody touched is passed by at once."""

from libs.contracts.node import MANAGER, Record
from libs.rollout.decision import Step, Wait
from libs.rollout.edits import arrivals, driver_label, lost, requests, state_label
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Field, Garbled, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import lease_of, readable, upgrading

_RECORD = Field.RECORD


def edits(node: NodeView, pool: PoolView, now: Instant) -> Step | Wait | None:
    """What follows from what somebody did to it; None: nobody did anything."""
    record = node.record
    if (
        type(record) is Record
        and node.lease is None
        and node.request is None
        and record.state == node.state
        and record.state in lost.RESTING
        and record.label == node.driver_label
        and not node.requested
        and (MANAGER in node.owners.get(_RECORD, (MANAGER,)))
    ):
        return None
    return _heard(node, pool, now)


def _heard(node: NodeView, pool: PoolView, now: Instant) -> Step | Wait | None:
    record = readable(node)
    if lease_of(node) is not None and upgrading(node) is None:
        return None
    why = lost.why(node, record, pool)
    if why:
        return lost.answered(node, pool, why, now)
    if isinstance(node.lease, Garbled):
        return None
    if record is None:
        return arrivals.adopted(node, pool, now) or requests.needless(node, None, pool, now)
    return (
        state_label.edited(node, record, pool, now)
        or requests.requested(node, record, pool, now)
        or driver_label.edited(node, record, pool, now)
        or requests.needless(node, record, pool, now)
    )
