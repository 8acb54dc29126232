"""A node under an upgrade lease, and the waits and writes that all its states share."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from libs.contracts.node import NodeLease, NodeRecord, Operation, UpgradeState, WaitCode
from libs.rollout import limits, wait_reasons
from libs.rollout.decision import NodeOutcome, Notice, NoticeKind, Step, Wait
from libs.rollout.node_writes import needs_cordon, record_in_state, unchanged_cordon, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import Build, PoolView, Readiness

ENDED_BY_REPORT: Final = frozenset(
    {UpgradeState.POD_RESTART_REQUIRED, UpgradeState.VALIDATION_REQUIRED}
)
"""States that end with a report of an agent: bus outages extend their deadlines."""

DEFAULT_CODES: Final[Mapping[str, WaitCode]] = {
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: WaitCode.JOBS,
    UpgradeState.POD_DELETION_REQUIRED: WaitCode.EVICTION,
    UpgradeState.DRAIN_REQUIRED: WaitCode.EVICTION,
    UpgradeState.POD_RESTART_REQUIRED: WaitCode.UNLOAD,
    UpgradeState.VALIDATION_REQUIRED: WaitCode.VALIDATION,
}
"""The wait code of a state where nothing more specific is known."""


class InFlightNode(msgspec.Struct, frozen=True, kw_only=True):
    node: NodeView
    pool: PoolView
    now: Instant
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


def in_flight_node(
    node: NodeView, pool: PoolView, record: NodeRecord, lease: NodeLease, now: Instant
) -> InFlightNode:
    reported = record.state in ENDED_BY_REPORT
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


def enter_state(
    f: InFlightNode,
    state: UpgradeState,
    because: str,
    *,
    driver_label: str | None = None,
    cleared: tuple[str, ...] = (),
    **changes: Any,
) -> Step:
    """Write the next state."""
    record = record_in_state(state, f.record, f.node, f.pool, f.now, **changes)
    return write_record(f, record, because, driver_label=driver_label, cleared=cleared)


def write_record(
    f: InFlightNode,
    record: NodeRecord,
    because: str,
    *,
    driver_label: str | None = None,
    mig_state: str | None = None,
    initially_cordoned: bool | None = None,
    cleared: tuple[str, ...] = (),
) -> Step:
    """Write under the lease; the cordon stays, or is restored."""
    taint = taint_wait(f)
    if taint is not None:
        return taint
    return write_step(
        f.node,
        record,
        f.now,
        because=because,
        lease=f.lease,
        cordon=True if f.needs_cordon else unchanged_cordon(f.node),
        driver_label=driver_label,
        mig_state=mig_state,
        initially_cordoned=initially_cordoned,
        cleared=cleared,
        notes=_cordon_notes(f),
    )


def taint_wait(f: InFlightNode) -> Step | None:
    """Wait for the taint that follows our new cordon: an earlier write would conflict with it."""
    if not f.needs_cordon or not f.node.cordoned or f.node.cordon_taint:
        return None
    settled_at = f.lease.since + limits.TAINT
    if f.now.at >= settled_at:
        return None
    detail = "waiting for the node lifecycle controller to add the taint of the cordon"
    code = DEFAULT_CODES.get(f.record.state, WaitCode.EVICTION)
    wait = state_wait(f, code, detail, who=wait_reasons.ITSELF, until=settled_at)
    return Step(actions=(), because=detail, wait=wait, wake_at=settled_at)


def _cordon_notes(f: InFlightNode) -> tuple[Notice, ...]:
    if f.node.cordoned or not f.needs_cordon:
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
