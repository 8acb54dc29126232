"""What people ask for by annotation, once: it is done, taken away, and told.

docs/states.md#people. `adopt` and `forget` are answered where a record is lost, `without-preflight`
by the start that it lets through. Here is what is left of them.
"""

from libs.contracts.node import (
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    Record,
    Request,
    UpgradeState,
)
from libs.rollout.decision import Note, Step
from libs.rollout.edits.state_label import ENDED, retry
from libs.rollout.edits.telling import request
from libs.rollout.rest.stamping import kept_label
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Field, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import cordon_kept, lease_of, upgrading, written

_WAITING = (UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_FAILED)


def spent(node: NodeView) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """What a start that is written now does of what was asked: keys to clear, and notes."""
    keys: list[str] = []
    notes: list[Note] = []
    if node.request is Request.WITHOUT_PREFLIGHT:
        keys.append(REQUEST_ANNOTATION)
        notes.append(request(node, Field.REQUEST, node.request.value, "it starts without one"))
    if node.requested:
        keys.append(REQUESTED_ANNOTATION)
        notes.append(request(node, Field.REQUESTED, "true", "the upgrade begins"))
    return tuple(keys), tuple(notes)


def requested(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Step | None:
    """The GPU Operator's annotation: as a state of `upgrade-required`."""
    if not node.requested or now.sight.foreign_operator:
        return None
    if record.state not in (*ENDED, UpgradeState.UPGRADE_REQUIRED):
        return None
    return retry(node, record, pool, now, Field.REQUESTED)


def needless(node: NodeView, record: Record | None, pool: PoolView, now: Instant) -> Step | None:
    """A request for what is not the case is taken away, with a word why."""
    why = _needless(node, record, pool)
    if not why or node.request is None:
        return None
    label = node.driver_label if record is None or upgrading(node) else kept_label(node, record)
    return written(
        node,
        record,
        now,
        because=f"the request {node.request.value} is taken away: {why}",
        lease=lease_of(node),
        cordon=cordon_kept(node),
        driver_label=label if record is not None or node.owned(Field.DRIVER) else "",
        cleared=(REQUEST_ANNOTATION,),
        notes=(request(node, Field.REQUEST, node.request.value, why),),
    )


def _needless(node: NodeView, record: Record | None, pool: PoolView) -> str:
    match node.request:
        case Request.ADOPT | Request.FORGET:
            return "nothing about this node was lost"
        case Request.WITHOUT_PREFLIGHT if record is not None:
            if record.state == UpgradeState.UPGRADE_DONE:
                build = pool.build(pool.target, node.variant)
                wanted = build is not None and build.label == node.driver_label
                return "the node waits for no preflight" if wanted else ""
            return "" if record.state in _WAITING else "its upgrade has begun already"
        case _:
            return ""
