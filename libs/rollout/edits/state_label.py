"""The state label says something else than the record (docs/states.md#people).

On a node that is done or failed `upgrade-required` is how people ask for a retry. All else is taken
back, once in an attempt.
"""

from msgspec.structs import replace

from libs.contracts.node import REQUESTED_ANNOTATION, STATE_LABEL, Record, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Step, Wait
from libs.rollout.edits.telling import edit, request, twice, writer
from libs.rollout.rest.stamping import kept_label, required
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Field, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import wait
from libs.rollout.writes import cordon_kept, cordons, lease_of, upgrading, written

ENDED = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)


def edited(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Step | Wait | None:
    """What follows where label and record differ."""
    if node.state == record.state:
        return None
    if now.sight.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, now.sight.foreign_operator, now)
    if record.state in ENDED and node.state == UpgradeState.UPGRADE_REQUIRED:
        return retry(node, record, pool, now, Field.STATE)
    if record.edits:
        return twice(node, record, now)
    return _taken_back(node, record, now)


def retry(node: NodeView, record: Record, pool: PoolView, now: Instant, field: Field) -> Step:
    """A person wants it upgraded once more, whatever its evidence says: a new attempt."""
    who = writer(node, field)
    said = f"{who} asked for another upgrade of a node in {record.state}"
    return required(
        node,
        record,
        pool,
        now,
        said,
        notes=(request(node, field, UpgradeState.UPGRADE_REQUIRED.value, said),),
        cleared=(REQUESTED_ANNOTATION,) if node.requested else (),
        asked=True,
        cause=f"asked for by {who}",
        back_off_until=0.0,
        back_off_seconds=0.0,
    )


def _taken_back(node: NodeView, record: Record, now: Instant) -> Step:
    message = (
        f"{STATE_LABEL} was {node.state or 'removed'}; it says where the node stands, and is"
        f" {record.state} again. To ask for another upgrade, set it to upgrade-required on a node"
        f" that is done or failed"
    )
    leased = upgrading(node) is not None
    return written(
        node,
        replace(record, edits=record.edits + 1),
        now,
        because=f"its state was edited by {writer(node, Field.STATE)}, and is put back",
        lease=lease_of(node),
        cordon=True if leased and cordons(record) else cordon_kept(node),
        driver_label=None if leased else kept_label(node, record),
        notes=(edit(node, Field.STATE, before=record.state, after=node.state, message=message),),
    )
