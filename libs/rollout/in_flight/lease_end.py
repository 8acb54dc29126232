"""How a lease ends: done, removed, released unchanged, or failed.

No node is released while a command that changes it is unanswered, and none fails while its driver
agent could still open the gate (docs/states.md#leaving).
"""

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from libs.contracts.commands import CommandKind, Idle
from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    MigState,
    NodeRecord,
    Operation,
    UpgradeState,
    WaitCode,
)
from libs.contracts.reports import Evidence
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
    write_under_lease,
)
from libs.rollout.mig_at_rest import mig_state_at_rest
from libs.rollout.node_driver import current_run
from libs.rollout.node_writes import NodeChange, taints_without, updated_record, write_step
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.wait_reasons import DRIVER_AGENT_LATE

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
        slots.idle_command(f.node, name, f.now, token=f.record.token, proven=proven)
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
    return _append_actions(written, _idle_commands(f, (*slots.QUIESCED, slots.DRIVER)))


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
            before=(*before, *_cancel_evictions(f)),
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
        if slots.held_command(f.node, name, f.record.token) is not None
        or slots.may_be_quiesced(f.node, name, f.record.token)
    ]
    commands = [
        slots.idle_command(f.node, name, f.now, token=f.record.token)
        for name in quiesced
        if slots.live_command(f.node, name, f.record.token, f.now, CommandKind.IDLE) is None
    ]
    if f.bus_is_down and commands:
        return bus_wait(f)
    if commands:
        detail = f"waiting for components to resume before the release: {reason}"
        wait = state_wait(f, WaitCode.QUIESCE, detail)
        return Step(
            actions=(*_cancel_evictions(f), *commands),
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
    return _released(f, reason, back_off=back_off)


def is_releasing(f: InFlightNode) -> bool:
    """Whether a release has begun: before step 6 only a release sends these components `idle`."""
    return any(
        slots.held_command(f.node, name, f.record.token, CommandKind.IDLE)
        for name in slots.QUIESCED
    )


def _released(f: InFlightNode, reason: str, *, back_off: bool, **changes: str) -> Step:
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


def fail(f: InFlightNode, cause: str) -> NodeOutcome:
    """Go to `upgrade-failed`, once the driver agent has confirmed that its gate stays shut."""
    if not is_failing(f):
        f = replace(f, record=replace(f.record, unbegun=_never_began(f)))
    driver = f.node.components.get(slots.DRIVER)
    changed = f.record.started or f.record.operation is Operation.VALIDATE
    if f.record.operation is Operation.MIG and not changed:
        digest = "" if f.node.mig is None else f.node.mig.digest
        return _released(f, cause, back_off=False, mig_digest=digest, mig_failed=cause)
    if driver is None or not changed:
        return _failed(f, cause)
    if f.bus_is_down:
        return bus_wait(f)
    if not is_failing(f):
        idle = slots.idle_command(f.node, slots.DRIVER, f.now, token=f.record.token)
        because = f"the upgrade fails: {cause}"
        if f.record.cause == cause:
            return Step(actions=(idle,), because=because)
        change = NodeChange(because=because, record=replace(f.record, cause=cause))
        return _append_actions(write_under_lease(f, change), (idle,))
    answered = driver.slot is not None and slots.command_result(driver, driver.slot) is not None
    if answered or driver.is_silent(f.now.at):
        return _failed(f, f.record.cause)
    detail = f"the upgrade failed; waiting for the driver agent to stop: {f.record.cause}"
    code = limits.IN_FLIGHT[f.record.state].waits_for
    wait = state_wait(f, code, detail, who=DRIVER_AGENT_LATE, until=driver.silent_at)
    return recheck_at(wait, driver.silent_at, f.now)


def _never_began(f: InFlightNode) -> bool:
    """Whether the driver agent has not begun the change of the driver, as far as it was heard.

    It reports each op as it begins, and heartbeats name the last command that it has read. Unless
    it refused that, it may have begun, and the report may be lost: that counts as harm. So does a
    machine that is down: the driver may have taken it down before a report left.
    """
    is_at_change = f.record.started and f.record.state == UpgradeState.POD_RESTART_REQUIRED
    if not is_at_change or not f.node.ready:
        return False
    driver, token, pod = f.node.components.get(slots.DRIVER), f.record.token, f.new_pod
    if driver is None or (pod is not None and pod.started is not None):
        return False
    if any(each is not None and each.token == token for each in (driver.progress, driver.result)):
        return False
    refusal = driver.refusal
    refused = refusal is not None and refusal.order == driver.highest_order
    return refused or driver.highest_order.token < token


def is_failing(f: InFlightNode) -> bool:
    """Whether a failure has begun: its cause is in the record, and nothing is proven."""
    command = slots.live_command(f.node, slots.DRIVER, f.record.token, f.now, CommandKind.IDLE)
    return command is not None and command.open() == Idle()


def _failed(f: InFlightNode, cause: str) -> Step:
    record = f.record
    changed = record.started or record.operation is Operation.VALIDATE
    run = current_run(f)
    failed = updated_record(
        f,
        record,
        state=UpgradeState.UPGRADE_FAILED,
        cause=cause,
        deadline=None,
        paused=False,
        unproven=True,
        revalidated=run.instance if run is not None else record.revalidated,
        evidence=None if changed else record.evidence,
    )
    taint = taint_wait(f)
    if taint is not None:
        return taint
    written = write_step(
        f,
        NodeChange(
            because=f"failed: {cause}",
            record=failed,
            lease=None,
            cordon=UNSET if record.operation is Operation.VALIDATE else True,
            mig_state=MigState.FAILED if record.operation is Operation.MIG else None,
            before=_cancel_evictions(f),
        ),
    )
    return _append_actions(written, _idle_commands(f, slots.QUIESCED))


def _slot_body(node: NodeView, name: str) -> object:
    slot = node.components[name].slot
    return slot.open() if slot is not None else None


def _idle_commands(f: InFlightNode, names: Sequence[str]) -> list[WriteSlot]:
    """Return the `idle` commands for slots that hold another command."""
    return [
        slots.idle_command(f.node, name, f.now, token=f.record.token)
        for name in names
        if name in f.node.components
        and f.node.components[name].slot is not None
        and _slot_body(f.node, name) != slots.idle_body(f.node, name)
    ]


def _cancel_evictions(f: InFlightNode) -> tuple[EvictPods, ...]:
    """Return the action that cancels the evictions in progress."""
    return (EvictPods(pods=()),) if f.node.evictions else ()


def _append_actions(written: Step, actions: Sequence[Action]) -> Step:
    """Append actions to a write; none if the write has to wait."""
    if not any(isinstance(action, WriteNode) for action in written.actions):
        return written
    return replace(written, actions=(*written.actions, *actions))
