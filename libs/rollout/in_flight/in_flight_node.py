"""A node under an upgrade lease, and the waits and writes that all its states share."""

from typing import Any, Final

from msgspec.structs import replace

from libs.contracts.commands import Command, CommandBody, CommandKind, Proven
from libs.contracts.node import NodeLease, NodeRecord, Operation, UpgradeState
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout import limits, slots, wait_reasons
from libs.rollout.cordons import needs_cordon
from libs.rollout.decision import NodeOutcome, Notice, NoticeKind, Step, Wait, WriteSlot
from libs.rollout.node_case import NodeCase
from libs.rollout.node_writes import NodeChange, record_in_state, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeField
from libs.rollout.views.pool import Build, Readiness


class InFlightNode(NodeCase, frozen=True, kw_only=True):
    """A node under an upgrade lease, with what its states are decided on."""

    record: NodeRecord
    """Its token is that of the lease, and of every op under it."""
    lease: NodeLease
    needs_cordon: bool
    build: Build | None
    """What the node gets for the target of its record."""
    deadline: float | None
    """When this state times out."""
    is_overdue: bool
    bus_is_down: bool
    old_pods: tuple[DriverPod, ...]
    """Driver pods that have to be gone before another is admitted."""
    new_pod: DriverPod | None
    """The driver pod that this operation should end with."""

    # The commands of this operation, by component.

    def command(self, name: str, body: CommandBody, deadline: float) -> WriteSlot:
        return slots.new_command(
            self.node, name, body, self.now, token=self.record.token, deadline=deadline
        )

    def idle(self, name: str, proven: Proven | None = None) -> WriteSlot:
        return slots.idle_command(self.node, name, self.now, token=self.record.token, proven=proven)

    def held_command(self, name: str, *kinds: CommandKind) -> Command | None:
        return slots.held_command(self.node, name, self.record.token, *kinds)

    def live_command(self, name: str, *kinds: CommandKind) -> Command | None:
        return slots.live_command(self.node, name, self.record.token, self.now, *kinds)

    def command_of_boot(self, name: str, *kinds: CommandKind) -> Command | None:
        """Return the live command of this boot: a reboot undoes what an earlier one did."""
        command = self.live_command(name, *kinds)
        return command if command and command.boot_id == self.node.boot_id else None

    def may_be_quiesced(self, name: str) -> bool:
        return slots.may_be_quiesced(self.node, name, self.record.token)

    def answer_due(self, command: Command, seconds: float) -> float:
        """Return when this command must be carried out, which was sent with so many seconds.

        What is left of its deadline does not pass while the pool is frozen or the bus is down: no
        agent can be told or heard then.
        """
        frozen = limits.deadline_extension(self.record, self.pool, self.now, reported=False)
        outage = limits.bus_outage_seconds(self.now, command.deadline - seconds)
        return command.deadline + frozen + outage


def in_flight_node(case: NodeCase, record: NodeRecord, lease: NodeLease) -> InFlightNode:
    node, pool, now = case.node, case.pool, case.now
    reported = limits.IN_FLIGHT[record.state].ends_by_report
    deadline = limits.effective_deadline(record, pool, now, reported=reported)
    new_pods = [pod for pod in node.driver_pods if not is_old_pod(record, pod)]
    return InFlightNode(
        node=node,
        pool=pool,
        now=now,
        record=record,
        lease=lease,
        needs_cordon=needs_cordon(record),
        build=pool.build(record.target, node.variant),
        deadline=deadline,
        is_overdue=deadline is not None and now.at >= deadline,
        bus_is_down=now.visibility.bus_down_since is not None,
        old_pods=tuple(pod for pod in node.driver_pods if pod not in new_pods),
        new_pod=new_pods[0] if new_pods else None,
    )


def is_old_pod(record: NodeRecord, pod: DriverPod) -> bool:
    """Whether this driver pod has to be gone before another is admitted."""
    if record.operation is Operation.REMOVE:
        return True
    return pod.deleting or pod.uid == record.old_pod_uid or pod.label != record.label


def state_wait(
    f: InFlightNode,
    code: WaitCode,
    detail: str,
    *,
    who: str | None = None,
    until: float | None = None,
) -> Wait:
    """Return a wait until the deadline of the state, or until the given time."""
    return wait_reasons.wait(code, detail, f.now, f.deadline if until is None else until, who=who)


def daemon_set_missing(f: InFlightNode) -> str:
    """Return that the DaemonSet of the wanted driver, and thus its pod, does not exist."""
    if f.record.operation is Operation.REMOVE or f.new_pod is not None:
        return ""
    if f.build is not None and f.build.readiness is not Readiness.MISSING:
        return ""
    return (
        f"the DaemonSet of driver {f.record.label} does not exist, perhaps because it or its"
        " namespace was deleted, so no driver pod can start"
    )


def with_missing_daemon_set(f: InFlightNode, outcome: NodeOutcome, missing: str) -> NodeOutcome:
    """Name the missing DaemonSet in the wait: what the node waits for otherwise cannot end it."""
    wait = outcome.wait if isinstance(outcome, Step) else outcome
    if not isinstance(wait, Wait):
        return outcome
    detail = f"{missing}; {wait.detail}"
    named = state_wait(f, WaitCode.TARGET_MISSING, detail, who=_OF_NAMESPACE, until=wait.until)
    return replace(outcome, wait=named) if isinstance(outcome, Step) else named


_OF_NAMESPACE: Final = (
    "the administrator of the namespace of the drivers, by letting the driver service create the"
    " DaemonSet again"
)


def recheck_at(wait: Wait, time: float, now: Instant) -> Wait | Step:
    """Return the wait, to be decided again at this time, before its own end."""
    if time <= now.at:
        return wait
    return Step(actions=(), because=wait.detail, wait=wait, wake_at=time)


def bus_wait(f: InFlightNode) -> Wait:
    detail = "NATS is unreachable, so agents cannot report; time limits are extended meanwhile"
    return wait_reasons.wait(WaitCode.BUS, detail, f.now)


def enter_state(f: InFlightNode, state: UpgradeState, because: str, **changes: Any) -> Step:
    """Write the next state."""
    record = record_in_state(f, state, f.record, **changes)
    return write_under_lease(f, NodeChange(because=because, record=record))


def write_under_lease(f: InFlightNode, change: NodeChange) -> Step:
    """Write while the operation goes on; a removed cordon is restored.

    Without it new pods would come to a node whose driver is about to be unloaded.
    """
    if taint := taint_wait(f):
        return taint
    if f.needs_cordon:
        change = replace(change, cordon=True, notes=_cordon_notes(f))
    return write_step(f, change)


def taint_wait(f: InFlightNode) -> Step | None:
    """Wait for the taint that follows our new cordon: an earlier write would conflict with it."""
    if not f.needs_cordon or not f.node.cordoned or f.node.cordon_taint:
        return None
    settled_at = f.lease.since + limits.TAINT
    if f.now.at >= settled_at:
        return None
    detail = "waiting for the node lifecycle controller to add the taint of the cordon"
    code = limits.IN_FLIGHT[f.record.state].waits_for
    wait = state_wait(f, code, detail, who=ITSELF, until=settled_at)
    return Step(actions=(), because=detail, wait=wait, wake_at=settled_at)


def _cordon_notes(f: InFlightNode) -> tuple[Notice, ...]:
    if f.node.cordoned:
        return ()
    manager = f.node.last_managers.get(NodeField.CORDON, "")
    message = f"{manager or 'an unknown manager'} uncordoned the node during its upgrade"
    notice = Notice(
        kind=NoticeKind.CORDON,
        field=NodeField.CORDON,
        manager=manager,
        after="true",
        message=f"{message}: cordoned again",
    )
    return (notice,)
