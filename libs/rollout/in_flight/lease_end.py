"""How a lease ends: done, removed, released unchanged, or failed.

No node is released while a command that changes it is unanswered, and none fails while its driver
agent could still open the gate (docs/states.md#leaving).
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from libs.contracts.commands import CommandKind, Idle
from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.reports import Evidence
from libs.contracts.waits import WaitCode
from libs.contracts.words import first_few
from libs.rollout import limits, slots
from libs.rollout.cordons import cordon_at_release, is_only_our_cordon
from libs.rollout.decision import (
    Action,
    EvictPods,
    NodeOutcome,
    NodeTaint,
    Step,
    WriteNode,
    WriteSlot,
)
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    recheck_at,
    state_wait,
    taint_wait,
)
from libs.rollout.mig_at_rest import mig_state_at_rest
from libs.rollout.node_writes import NodeChange, taints_without, updated_record, write_step
from libs.rollout.views.node import NodeField, NodeView

AGENT_SILENT_REASON: Final = "agent-silent: the driver agent has stopped sending heartbeats"
NOT_READY_REASON: Final = "not-ready: the Node did not become Ready in time"


def finish_upgrade(f: InFlightNode, evidence: Evidence) -> NodeOutcome:
    """Step 9: announce the proof to driver agent and validator, and release the node."""
    reduced = NodeRecord(
        node_uid=f.node.uid,
        epoch=f.now.epoch,
        token=f.record.token,
        pool=f.record.pool,
        target=f.record.target,
        label=f.record.label,
        state=UpgradeState.UPGRADE_DONE,
        since=f.now.at,
        boot_id=f.node.boot_id,
        edits=f.record.edits,
        restarts=f.record.restarts,
        mig_digest=f.record.mig_digest,
        mig_failed=f.record.mig_failed,
        was_done=True,
        evidence=replace(evidence, allocatable=()),
    )
    proven = slots.proven_by(evidence)
    before = [
        f.idle(name, proven)
        for name in (slots.DRIVER, slots.VALIDATOR)
        if name in f.node.components and _slot_body(f.node, name) != Idle(proven=proven)
    ]
    return _release_node(
        f,
        reduced,
        f"validated; {_cordon_afterwards(f)}",
        proven=True,
        taints=_without_startup_taint(f),
        before=before,
    )


def _cordon_afterwards(f: InFlightNode) -> str:
    """Tell what becomes of the node's cordon once its driver is proven."""
    if not f.node.cordoned:
        return "back in service"
    if f.node.keep_cordoned:
        return f"still cordoned, as its label {KEEP_CORDONED_LABEL} wants"
    if cordon_at_release(f.node, f.record, proven=True) is False or is_only_our_cordon(f.node):
        return "back in service"
    return "still cordoned by a person"


def _without_startup_taint(f: InFlightNode) -> tuple[NodeTaint, ...] | None:
    """Return the taints that stay when the node is done for the first time; None: all do."""
    key = f.pool.strategy.startup_taint
    return taints_without(f.node, key) if key and not f.record.was_done else None


def finish_removal(f: InFlightNode) -> NodeOutcome:
    """End a removal: nothing of ours stays on the node."""
    written = _release_node(
        f, None, "the driver is removed; the node is no longer managed", proven=True
    )
    return append_actions(written, idle_commands(f, (*slots.QUIESCED, slots.DRIVER)))


def _release_node(
    f: InFlightNode,
    record: NodeRecord | None,
    because: str,
    *,
    proven: bool,
    taints: tuple[NodeTaint, ...] | None = None,
    before: Sequence[Action] = (),
) -> Step:
    known = record is not None and record.state == UpgradeState.UPGRADE_DONE
    return taint_wait(f) or write_step(
        f,
        NodeChange(
            because=because if taints is None else f"{because}; its startup taint is removed",
            record=record,
            lease=None,
            taints=taints,
            cordon=cordon_at_release(f.node, f.record, proven=proven),
            initially_cordoned=None if f.record.unproven and not proven else False,
            mig_state=mig_state_at_rest(f.node, record) if known and record is not None else None,
            cleared=_initial_state(f.node) if proven or not f.record.unproven else (),
            before=(*before, *cancel_evictions(f)),
        ),
    )


def _initial_state(node: NodeView) -> tuple[str, ...]:
    """Clear the annotation about the cordon where the GPU Operator owns it too."""
    foreign = node.initially_cordoned and node.other_managers(NodeField.INITIALLY_CORDONED)
    return (INITIALLY_CORDONED_ANNOTATION,) if foreign else ()


def release(f: InFlightNode, reason: str, *, back_off: bool) -> NodeOutcome:
    """Return to `upgrade-required` before step 6: nothing has to be validated.

    Components that released the devices take them again first, or are silent.
    """
    quiesced = [
        name
        for name in slots.QUIESCED
        if f.held_command(name) is not None or f.may_be_quiesced(name)
    ]
    commands = [f.idle(name) for name in quiesced if f.live_command(name, CommandKind.IDLE) is None]
    if f.bus_is_down and commands:
        return bus_wait(f)
    if commands:
        detail = f"waiting for components to resume before the release: {reason}"
        wait = state_wait(f, WaitCode.QUIESCE, detail)
        return Step(
            actions=(*cancel_evictions(f), *commands),
            because=f"release the node: {reason}",
            wait=wait,
        )
    components = f.node.components
    unanswered = [
        name
        for name in quiesced
        if not components[name].is_silent(f.now.at)
        and slots.slot_result(f.node, name, components[name].slot) is None
    ]
    if f.bus_is_down and unanswered:
        return bus_wait(f)
    if unanswered:
        detail = f"waiting for {first_few(unanswered)} to resume before the release: {reason}"
        silent_at = max(components[name].silent_at for name in unanswered)
        wait = state_wait(f, WaitCode.QUIESCE, detail, until=silent_at)
        return recheck_at(wait, silent_at, f.now)
    return write_released(f, reason, back_off=back_off)


def is_releasing(f: InFlightNode) -> bool:
    """Whether a release has begun: before step 6 only a release sends these components `idle`."""
    return any(f.held_command(name, CommandKind.IDLE) for name in slots.QUIESCED)


def write_released(f: InFlightNode, reason: str, *, back_off: bool, **changes: str) -> Step:
    cordon = cordon_at_release(f.node, f.record, proven=False)
    record = updated_record(
        f,
        f.record,
        state=UpgradeState.UPGRADE_REQUIRED,
        operation=None,
        attempt=max(0, f.record.attempt - 1),
        deadline=None,
        paused=False,
        cordon_adopted=f.record.cordon_adopted and cordon is not False,
    )
    if f.record.operation is Operation.MIG:
        record = replace(
            record, state=UpgradeState.UPGRADE_DONE, outside=False, attempt=0, **changes
        )
    if back_off:
        seconds = limits.next_back_off(record)
        record = replace(
            record, cause=reason, back_off_seconds=seconds, back_off_until=f.now.at + seconds
        )
    return _release_node(f, record, f"released unchanged: {reason}", proven=False)


def _slot_body(node: NodeView, name: str) -> object:
    slot = node.components[name].slot
    return slot.open() if slot is not None else None


def idle_commands(f: InFlightNode, names: Sequence[str]) -> list[WriteSlot]:
    """Return the `idle` commands for slots that hold another command."""
    return [
        f.idle(name)
        for name in names
        if name in f.node.components
        and f.node.components[name].slot is not None
        and _slot_body(f.node, name) != slots.idle_body(f.node, name)
    ]


def cancel_evictions(f: InFlightNode) -> tuple[EvictPods, ...]:
    """Return the action that cancels the evictions in progress."""
    return (EvictPods(pods=()),) if f.node.evictions else ()


def append_actions(written: Step, actions: Sequence[Action]) -> Step:
    """Append actions to a write; none if the write has to wait."""
    if not any(isinstance(action, WriteNode) for action in written.actions):
        return written
    return replace(written, actions=(*written.actions, *actions))
