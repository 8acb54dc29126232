"""A node that bears signs of us, and whose record does not say where it stands.

It is not ours any more (docs/states.md#people): nothing is done to it, and least of all is it
uncordoned, until a person has us adopt it, or forget it. Without a lease not even a command of ours
is left standing that nobody has begun.
"""

from collections.abc import Iterator

from libs.contracts.node import (
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    STATE_LABEL,
    Record,
    Request,
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Step, Wait
from libs.rollout.edits.telling import request, writer
from libs.rollout.rest import idle
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Field, Garbled, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import wait
from libs.rollout.writes import cordon_kept, lease_of, upgrading, written

RESTING = frozenset(
    {UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED, UpgradeState.UPGRADE_REQUIRED}
)
"""States of a node that nobody is changing."""

_STARTED = frozenset(
    {
        UpgradeState.POD_RESTART_REQUIRED,
        UpgradeState.VALIDATION_REQUIRED,
        UpgradeState.UNCORDON_REQUIRED,
        UpgradeState.UPGRADE_FAILED,
    }
)
"""In these, as far as the label can be believed, the driver label has moved."""


def why(node: NodeView, record: Record | None, pool: PoolView) -> str:
    """Why it cannot be told where the node stands; empty: it can."""
    if record is None:
        return _without(node) if _signs(node, pool) else ""
    if node.others(Field.RECORD) and not node.owned(Field.RECORD):
        return f"its record was rewritten by {writer(node, Field.RECORD)}"
    ours = upgrading(node)
    if record.state in RESTING:
        return "" if ours is None else "it is leased by us, and its record knows nothing of it"
    if ours is None:
        return f"it was in {record.state}, and its lease is gone or cannot be read"
    return ""


def answered(node: NodeView, pool: PoolView, why: str, now: Instant) -> Step | Wait:
    """Only a person can say what becomes of it."""
    match node.request:
        case Request.ADOPT:
            return _adopted(node, pool, now)
        case Request.FORGET:
            return _forgotten(node, pool, now)
        case _:
            return _let_be(node, why, now)


def _let_be(node: NodeView, why: str, now: Instant) -> Step | Wait:
    waits = wait(WaitCode.RECORD_LOST, why, now)
    leased = isinstance(node.lease, Garbled) or lease_of(node) is not None
    taken_back = () if leased else idle.withdrawn(node, now)
    if not taken_back:
        return waits
    names = ", ".join(action.component for action in taken_back)
    return Step(
        actions=taken_back, because=f"it is not ours any more: `idle` to {names}", wait=waits
    )


def right(node: NodeView, pool: PoolView) -> bool:
    """Whether its driver label is what its policy renders."""
    build = pool.build(pool.target, node.variant)
    return build is not None and build.label == node.driver_label


def highest_token(node: NodeView, pool: PoolView) -> int:
    """The highest token that anybody knows of this node."""
    return max(_tokens(node, pool), default=0)


def _tokens(node: NodeView, pool: PoolView) -> Iterator[int]:
    lease = lease_of(node)
    if lease is not None:
        yield lease.token
    # The Rollout's own word: a place that is being taken back was given all the same.
    stored = {} if pool.rollout is None else pool.rollout.status.in_flight
    for places in (stored, pool.standing.in_flight):
        if node.uid in places:
            yield places[node.uid].token
    if isinstance(node.record, Record) and node.record.node_uid == node.uid:
        yield node.record.token
    for component in node.components.values():
        yield component.highest.token
        if component.slot is not None and component.slot.node_uid == node.uid:
            yield component.slot.token


def _without(node: NodeView) -> str:
    if isinstance(node.record, Garbled):
        return f"its record cannot be read: {node.record.why}"
    return "its record is gone"


def _signs(node: NodeView, pool: PoolView) -> bool:
    """Whether anything on it, or in the Rollout, says that it was ours."""
    if upgrading(node) is not None or _begun(node, pool):
        return True
    if isinstance(node.record, Record):
        return False
    if isinstance(node.lease, Garbled) and node.owned(Field.LEASE):
        return True
    if node.signed(Field.STATE):
        return True
    labelled = node.signed(Field.DRIVER)
    if node.record is not None:
        return labelled or node.owned(Field.RECORD)
    return labelled and (bool(node.state) or not right(node, pool))


def _begun(node: NodeView, pool: PoolView) -> bool:
    """Whether its present place in flight is of an operation that an agent has heard of."""
    entry = pool.standing.in_flight.get(node.uid)
    if entry is None:
        return False
    return any(
        component.highest.token >= entry.token
        or (
            component.slot is not None
            and component.slot.node_uid == node.uid
            and component.slot.token >= entry.token
        )
        for component in node.components.values()
    )


def _adopted(node: NodeView, pool: PoolView, now: Instant) -> Step:
    """It is ours again as its labels have it, and nothing of it is proven."""
    rests = node.state in (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
    state = node.state if rests else UpgradeState.UPGRADE_REQUIRED.value
    who = writer(node, Field.REQUEST)
    record = Record(
        node_uid=node.uid,
        epoch=now.epoch,
        token=highest_token(node, pool),
        pool=pool.key,
        target=_target(node, pool),
        label=node.driver_label,
        state=state,
        since=now.at,
        boot_id=node.boot_id,
        started=node.state in _STARTED,
        cause=f"adopted by {who} in {node.state or 'no state'}",
    )
    said = f"it is ours again in {state}, and nothing of it counts as proven"
    return written(
        node,
        record,
        now,
        because=f"{who} had us adopt it",
        lease=None,
        cordon=cordon_kept(node),
        cleared=(REQUEST_ANNOTATION, *_theirs(node, Field.LEASE)),
        notes=(request(node, Field.REQUEST, Request.ADOPT.value, said),),
    )


def _target(node: NodeView, pool: PoolView) -> str:
    """Of which target its driver label is."""
    for target, builds in pool.builds.items():
        if any(build.label == node.driver_label for build in builds.values()):
            return target
    return ""


def _forgotten(node: NodeView, pool: PoolView, now: Instant) -> Step:
    """It is as if we had never been there; but what may be in use stays, and so does our cordon.

    Without a proof it is not handed back: it begins anew, as a machine that is in use.
    """
    kept = right(node, pool)
    said = "state, lease and record are gone" + ("" if kept else ", and so is its driver label")
    return written(
        node,
        None,
        now,
        because=f"{writer(node, Field.REQUEST)} had us forget it",
        lease=None,
        cordon=cordon_kept(node),
        driver_label=node.driver_label if kept else "",
        initially_cordoned=False,
        cleared=(REQUEST_ANNOTATION, *_theirs(node, Field.STATE, Field.LEASE, Field.RECORD)),
        notes=(request(node, Field.REQUEST, Request.FORGET.value, said),),
    )


_KEYS = {
    Field.STATE: STATE_LABEL,
    Field.LEASE: LEASE_ANNOTATION,
    Field.RECORD: RECORD_ANNOTATION,
}


def _theirs(node: NodeView, *fields: Field) -> tuple[str, ...]:
    """Keys of ours that somebody else wrote over: left out they would stay, and mean nothing."""
    return tuple(_KEYS[field] for field in fields if node.others(field))
