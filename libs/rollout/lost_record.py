"""Nodes with signs of Sluice, but a missing or contradictory record.

Nothing is done to such a node, least of all an uncordon, until a person requests to adopt or to
forget it (docs/states.md#people). Without a lease, commands that no component has begun are
withdrawn.
"""

from collections.abc import Iterator

from msgspec import UNSET

from libs.contracts.node import (
    ADOPTED,
    REQUEST_ANNOTATION,
    NodeRecord,
    NodeRequest,
    UpgradeState,
    user_of,
)
from libs.contracts.waits import WaitCode
from libs.rollout.at_rest import is_unwanted
from libs.rollout.decision import Step, Wait
from libs.rollout.idle_slots import withdraw_commands
from libs.rollout.node_case import NodeCase
from libs.rollout.node_writes import RESTING_STATES, NodeChange, overwritten_keys, write_step
from libs.rollout.notices import edit_notice, field_writer, request_notice
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
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


def loss_reason(case: NodeCase) -> str:
    """Return why the state of the node is unknown; empty: it is known."""
    if case.record is None:
        return _record_problem(case.node) if _was_ours(case) else ""
    if case.node.other_managers(NodeField.RECORD) and not case.node.is_owned(NodeField.RECORD):
        return f"the upgrade record was overwritten by {field_writer(case.node, NodeField.RECORD)}"
    lease = case.lease
    if case.record.state in RESTING_STATES:
        return (
            ""
            if lease is None
            else "the node has an upgrade lease, but its record shows no upgrade in progress"
        )
    if lease is None:
        return (
            f"the record is in {case.record.state}, but the upgrade lease is missing or unreadable"
        )
    return ""


def handle_lost_record(case: NodeCase, reason: str) -> Step | Wait:
    """Carry out the request of a person, or wait for one."""
    match case.node.request:
        case NodeRequest.ADOPT:
            return _adopt(case)
        case NodeRequest.FORGET:
            return forget(case)
        case _:
            return _wait_for_request(case, reason)


def _wait_for_request(case: NodeCase, reason: str) -> Step | Wait:
    lost = wait(WaitCode.RECORD_LOST, reason, case.now)
    leased = isinstance(case.node.lease, MalformedAnnotation) or case.node.current_lease is not None
    withdrawn = () if leased else withdraw_commands(case.node, case.now)
    if not withdrawn:
        return lost
    names = ", ".join(action.component for action in withdrawn)
    return Step(
        actions=withdrawn,
        because=f"the upgrade record is lost: withdraw commands, send idle to {names}",
        wait=lost,
    )


def has_wanted_label(case: NodeCase) -> bool:
    build = case.pool.build(case.pool.target, case.node.variant)
    return build is not None and build.label == case.node.driver_label


def highest_token(case: NodeCase) -> int:
    return max(_tokens(case), default=0)


def _tokens(case: NodeCase) -> Iterator[int]:
    """Yield every token that was ever given to the node, as far as known."""
    lease = case.node.current_lease
    if lease is not None:
        yield lease.token
    # Include the stored entry: the token of a grant that is being withdrawn is used up.
    stored = {} if case.pool.rollout is None else case.pool.rollout.status.in_flight
    for entries in (stored, case.pool.constraints.in_flight):
        if case.node.uid in entries:
            yield entries[case.node.uid].token
    if isinstance(case.node.record, NodeRecord) and case.node.record.node_uid == case.node.uid:
        yield case.node.record.token
    yield case.node.highest_order.token


def _record_problem(node: NodeView) -> str:
    if isinstance(node.record, MalformedAnnotation):
        return f"the upgrade record cannot be read: {node.record.reason}"
    return "the upgrade record is missing"


def _was_ours(case: NodeCase) -> bool:
    """Whether the node, the Rollout or a command shows that Sluice managed the node.

    Commands alone show it only beside an unreadable record: a node that was forgotten, or whose
    driver was removed, has had commands too.
    """
    if case.lease is not None or _has_begun(case) or case.node.has_damaged_record:
        return True
    if isinstance(case.node.record, NodeRecord):
        return False
    if isinstance(case.node.lease, MalformedAnnotation) and case.node.is_owned(NodeField.LEASE):
        return True
    if case.node.has_our_value(NodeField.STATE):
        return True
    has_label = case.node.has_our_value(NodeField.DRIVER)
    if case.node.record is not None:
        return has_label or case.node.is_owned(NodeField.RECORD)
    return has_label and (bool(case.node.state) or not has_wanted_label(case))


def _has_begun(case: NodeCase) -> bool:
    """Whether its entry in flight is of an operation that an agent has received."""
    entry = case.pool.constraints.in_flight.get(case.node.uid)
    return entry is not None and case.node.highest_order.token >= entry.token


def _adopt(case: NodeCase) -> Step:
    """Take the node over as its labels describe it, with nothing proven."""
    ended = case.node.state in (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
    state = case.node.state if ended else UpgradeState.UPGRADE_REQUIRED.value
    person = user_of(field_writer(case.node, NodeField.REQUEST))
    record = NodeRecord(
        node_uid=case.node.uid,
        epoch=case.now.epoch,
        token=highest_token(case),
        pool=case.pool.key,
        target=_target_of_label(case),
        label=case.node.driver_label,
        state=state,
        since=case.now.at,
        boot_id=case.node.boot_id,
        started=case.node.state in _STARTED,
        cause=f"{ADOPTED}by {person} in {case.node.state or 'no state'}",
    )
    message = f"adopted in {state}; the driver counts as unproven until it is validated"
    return write_step(
        case,
        NodeChange(
            because=f"adopted at the request of {person}",
            record=record,
            lease=None,
            cleared=(REQUEST_ANNOTATION, *overwritten_keys(case.node, NodeField.LEASE)),
            notes=(request_notice(case.node, NodeField.REQUEST, NodeRequest.ADOPT.value, message),),
        ),
    )


def _target_of_label(case: NodeCase) -> str:
    for target, builds in case.pool.builds.items():
        if any(build.label == case.node.driver_label for build in builds.values()):
            return target
    return ""


def forget(case: NodeCase) -> Step:
    """Remove our labels and annotations, but keep our cordon and a driver that may be in use.

    The node then begins anew, as a machine that is in use.
    """
    person = user_of(field_writer(case.node, NodeField.REQUEST))
    keeps_label = has_wanted_label(case)
    message = "state, lease and record are removed" + (
        "" if keeps_label else ", and so is the driver label"
    )
    return write_step(
        case,
        NodeChange(
            because=f"forgotten at the request of {person}",
            record=None,
            lease=None,
            driver_label=case.node.driver_label if keeps_label else "",
            initially_cordoned=False,
            cleared=(
                REQUEST_ANNOTATION,
                *overwritten_keys(case.node, NodeField.STATE, NodeField.LEASE, NodeField.RECORD),
            ),
            notes=(
                request_notice(case.node, NodeField.REQUEST, NodeRequest.FORGET.value, message),
            ),
        ),
    )


def adopt_from_operator(case: NodeCase) -> Step | None:
    """Take the node over in `upgrade-required`, with the cordon of that operator."""
    if (
        not case.node.state
        or isinstance(case.node.record, NodeRecord)
        or case.now.visibility.foreign_operator
    ):
        return None
    if is_unwanted(case) or case.pool.gone or not case.pool.constraints.may_mark_required:
        return None
    cordon_adopted = (
        case.node.cordoned and not case.node.initially_cordoned and case.node.state in _CORDONED
    )
    record = NodeRecord(
        node_uid=case.node.uid,
        epoch=case.now.epoch,
        token=highest_token(case),
        pool=case.pool.key,
        state=UpgradeState.UPGRADE_REQUIRED.value,
        since=case.now.at,
        boot_id=case.node.boot_id,
        cause=f"{ADOPTED}in {case.node.state}",
        cordon_adopted=cordon_adopted,
    )
    message = f"another operator left the node in {case.node.state}; Sluice takes it over"
    return write_step(
        case,
        NodeChange(
            because=message,
            record=record,
            cordon=True if cordon_adopted else UNSET,
            cleared=(REQUEST_ANNOTATION,) if case.node.request is NodeRequest.ADOPT else (),
            notes=(
                edit_notice(
                    case.node,
                    NodeField.STATE,
                    before=case.node.state,
                    after=record.state,
                    message=message,
                ),
            ),
        ),
    )
