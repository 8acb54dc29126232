"""Nodes with signs of Sluice, but a missing or contradictory record.

Nothing is done to such a node, least of all an uncordon, until a person requests to adopt or to
forget it (docs/states.md#people). Without a lease, commands that no component has begun are
withdrawn.
"""

from collections.abc import Iterator

from libs.contracts.node import (
    ADOPTED,
    REQUEST_ANNOTATION,
    NodeRecord,
    NodeRequest,
    UpgradeState,
    WaitCode,
    user_of,
)
from libs.rollout.at_rest import is_unwanted
from libs.rollout.decision import Step, Wait
from libs.rollout.node_writes import (
    RESTING_STATES,
    current_lease,
    overwritten_keys,
    unchanged_cordon,
    upgrade_lease,
    write_step,
)
from libs.rollout.notices import edit_notice, field_writer, request_notice
from libs.rollout.slots import withdraw_commands
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait

_STARTED = frozenset(
    {
        UpgradeState.POD_RESTART_REQUIRED,
        UpgradeState.VALIDATION_REQUIRED,
        UpgradeState.UNCORDON_REQUIRED,
        UpgradeState.UPGRADE_FAILED,
    }
)
"""States in which the driver label has moved, as far as the state label can be trusted."""

_CORDONED = frozenset(UpgradeState) - {
    UpgradeState.UNKNOWN,
    UpgradeState.UPGRADE_REQUIRED,
    UpgradeState.CORDON_REQUIRED,
    UpgradeState.UPGRADE_DONE,
}
"""States in which the GPU Operator has cordoned the node. Others are not its states."""


def loss_reason(node: NodeView, record: NodeRecord | None, pool: PoolView) -> str:
    """Return why the state of the node is unknown; empty: it is known."""
    if record is None:
        return _record_problem(node) if _was_ours(node, pool) else ""
    if node.other_managers(NodeField.RECORD) and not node.is_owned(NodeField.RECORD):
        return f"the upgrade record was overwritten by {field_writer(node, NodeField.RECORD)}"
    lease = upgrade_lease(node)
    if record.state in RESTING_STATES:
        return (
            ""
            if lease is None
            else "the node has an upgrade lease, but its record shows no upgrade in progress"
        )
    if lease is None:
        return f"the record is in {record.state}, but the upgrade lease is missing or unreadable"
    return ""


def handle_lost_record(node: NodeView, pool: PoolView, reason: str, now: Instant) -> Step | Wait:
    """Carry out the request of a person, or wait for one."""
    match node.request:
        case NodeRequest.ADOPT:
            return _adopt(node, pool, now)
        case NodeRequest.FORGET:
            return forget(node, pool, now)
        case _:
            return _wait_for_request(node, reason, now)


def _wait_for_request(node: NodeView, reason: str, now: Instant) -> Step | Wait:
    lost = wait(WaitCode.RECORD_LOST, reason, now)
    leased = isinstance(node.lease, MalformedAnnotation) or current_lease(node) is not None
    withdrawn = () if leased else withdraw_commands(node, now)
    if not withdrawn:
        return lost
    names = ", ".join(action.component for action in withdrawn)
    return Step(
        actions=withdrawn,
        because=f"the upgrade record is lost: withdraw commands, send idle to {names}",
        wait=lost,
    )


def has_wanted_label(node: NodeView, pool: PoolView) -> bool:
    build = pool.build(pool.target, node.variant)
    return build is not None and build.label == node.driver_label


def highest_token(node: NodeView, pool: PoolView) -> int:
    return max(_tokens(node, pool), default=0)


def _tokens(node: NodeView, pool: PoolView) -> Iterator[int]:
    """Yield every token that was ever given to the node, as far as known."""
    lease = current_lease(node)
    if lease is not None:
        yield lease.token
    # Include the stored entry: the token of a grant that is being withdrawn is used up.
    stored = {} if pool.rollout is None else pool.rollout.status.in_flight
    for entries in (stored, pool.constraints.in_flight):
        if node.uid in entries:
            yield entries[node.uid].token
    if isinstance(node.record, NodeRecord) and node.record.node_uid == node.uid:
        yield node.record.token
    yield node.highest_order.token


def _record_problem(node: NodeView) -> str:
    if isinstance(node.record, MalformedAnnotation):
        return f"the upgrade record cannot be read: {node.record.reason}"
    return "the upgrade record is missing"


def _was_ours(node: NodeView, pool: PoolView) -> bool:
    """Whether the node, the Rollout or a command shows that Sluice managed the node.

    Commands alone show it only beside an unreadable record: a node that was forgotten, or whose
    driver was removed, has had commands too.
    """
    if upgrade_lease(node) is not None or _has_begun(node, pool) or node.has_damaged_record:
        return True
    if isinstance(node.record, NodeRecord):
        return False
    if isinstance(node.lease, MalformedAnnotation) and node.is_owned(NodeField.LEASE):
        return True
    if node.has_our_value(NodeField.STATE):
        return True
    has_label = node.has_our_value(NodeField.DRIVER)
    if node.record is not None:
        return has_label or node.is_owned(NodeField.RECORD)
    return has_label and (bool(node.state) or not has_wanted_label(node, pool))


def _has_begun(node: NodeView, pool: PoolView) -> bool:
    """Whether its entry in flight is of an operation that an agent has received."""
    entry = pool.constraints.in_flight.get(node.uid)
    return entry is not None and node.highest_order.token >= entry.token


def _adopt(node: NodeView, pool: PoolView, now: Instant) -> Step:
    """Take the node over as its labels describe it, with nothing proven."""
    ended = node.state in (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
    state = node.state if ended else UpgradeState.UPGRADE_REQUIRED.value
    person = user_of(field_writer(node, NodeField.REQUEST))
    record = NodeRecord(
        node_uid=node.uid,
        epoch=now.epoch,
        token=highest_token(node, pool),
        pool=pool.key,
        target=_target_of_label(node, pool),
        label=node.driver_label,
        state=state,
        since=now.at,
        boot_id=node.boot_id,
        started=node.state in _STARTED,
        cause=f"{ADOPTED}by {person} in {node.state or 'no state'}",
    )
    message = f"adopted in {state}; the driver counts as unproven until it is validated"
    return write_step(
        node,
        record,
        now,
        because=f"adopted at the request of {person}",
        lease=None,
        cordon=unchanged_cordon(node),
        cleared=(REQUEST_ANNOTATION, *overwritten_keys(node, NodeField.LEASE)),
        notes=(request_notice(node, NodeField.REQUEST, NodeRequest.ADOPT.value, message),),
    )


def _target_of_label(node: NodeView, pool: PoolView) -> str:
    for target, builds in pool.builds.items():
        if any(build.label == node.driver_label for build in builds.values()):
            return target
    return ""


def forget(node: NodeView, pool: PoolView, now: Instant) -> Step:
    """Remove our labels and annotations, but keep our cordon and a driver that may be in use.

    The node then begins anew, as a machine that is in use.
    """
    person = user_of(field_writer(node, NodeField.REQUEST))
    keeps_label = has_wanted_label(node, pool)
    message = "state, lease and record are removed" + (
        "" if keeps_label else ", and so is the driver label"
    )
    return write_step(
        node,
        None,
        now,
        because=f"forgotten at the request of {person}",
        lease=None,
        cordon=unchanged_cordon(node),
        driver_label=node.driver_label if keeps_label else "",
        initially_cordoned=False,
        cleared=(
            REQUEST_ANNOTATION,
            *overwritten_keys(node, NodeField.STATE, NodeField.LEASE, NodeField.RECORD),
        ),
        notes=(request_notice(node, NodeField.REQUEST, NodeRequest.FORGET.value, message),),
    )


def adopt_from_operator(node: NodeView, pool: PoolView, now: Instant) -> Step | None:
    """Take the node over in `upgrade-required`, with the cordon of that operator."""
    if not node.state or isinstance(node.record, NodeRecord) or now.visibility.foreign_operator:
        return None
    if is_unwanted(node, pool) or pool.gone or not pool.constraints.may_mark_required:
        return None
    cordon_adopted = node.cordoned and not node.initially_cordoned and node.state in _CORDONED
    record = NodeRecord(
        node_uid=node.uid,
        epoch=now.epoch,
        token=highest_token(node, pool),
        pool=pool.key,
        state=UpgradeState.UPGRADE_REQUIRED.value,
        since=now.at,
        boot_id=node.boot_id,
        cause=f"{ADOPTED}in {node.state}",
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
        cleared=(REQUEST_ANNOTATION,) if node.request is NodeRequest.ADOPT else (),
        notes=(
            edit_notice(
                node, NodeField.STATE, before=node.state, after=record.state, message=message
            ),
        ),
    )
