"""How an operation fails: not while its driver agent could still open the gate.

docs/states.md#leaving. A driver that loads after the failure was written would run unproven on a
node that nobody watches any more.
"""

from msgspec import UNSET
from msgspec.structs import replace

from libs.contracts.commands import CommandKind, Idle
from libs.contracts.node import (
    MigState,
    Operation,
    UpgradeState,
)
from libs.contracts.waits import DRIVER_AGENT_LATE
from libs.rollout import limits, slots
from libs.rollout.decision import (
    NodeOutcome,
    Step,
)
from libs.rollout.in_flight.in_flight_node import (
    InFlightNode,
    bus_wait,
    recheck_at,
    state_wait,
    taint_wait,
    write_under_lease,
)
from libs.rollout.in_flight.lease_end import (
    append_actions,
    cancel_evictions,
    idle_commands,
    write_released,
)
from libs.rollout.node_driver import current_run
from libs.rollout.node_writes import NodeChange, updated_record, write_step


def fail(f: InFlightNode, cause: str) -> NodeOutcome:
    """Go to `upgrade-failed`, once the driver agent has confirmed that its gate stays shut."""
    if not is_failing(f):
        f = replace(f, record=replace(f.record, unbegun=_never_began(f)))
    driver = f.node.components.get(slots.DRIVER)
    changed = f.record.started or f.record.operation is Operation.VALIDATE
    if f.record.operation is Operation.MIG and not changed:
        digest = "" if f.node.mig is None else f.node.mig.digest
        return write_released(f, cause, back_off=False, mig_digest=digest, mig_failed=cause)
    if driver is None or not changed:
        return _failed(f, cause)
    if f.bus_is_down:
        return bus_wait(f)
    if not is_failing(f):
        idle = f.idle(slots.DRIVER)
        because = f"the upgrade fails: {cause}"
        if f.record.cause == cause:
            return Step(actions=(idle,), because=because)
        change = NodeChange(because=because, record=replace(f.record, cause=cause))
        return append_actions(write_under_lease(f, change), (idle,))
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
    command = f.live_command(slots.DRIVER, CommandKind.IDLE)
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
            before=cancel_evictions(f),
        ),
    )
    return append_actions(written, idle_commands(f, slots.QUIESCED))
