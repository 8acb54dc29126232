"""A node under a lease of ours, as every state looks at it; and how a state waits, or writes.

Must not know what any state does.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.contracts.node import Lease, Operation, Record, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout import limits, waiting
from libs.rollout.decision import Note, Step, Told, Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import Field, NodeView
from libs.rollout.views.pool import Build, PoolView
from libs.rollout.writes import cordon_kept, cordons, entered, written

REPORTED: Final = frozenset({UpgradeState.POD_RESTART_REQUIRED, UpgradeState.VALIDATION_REQUIRED})
"""States that a report ends: their limits grow while none can be heard."""

CODES: Final[Mapping[str, WaitCode]] = {
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: WaitCode.JOBS,
    UpgradeState.POD_DELETION_REQUIRED: WaitCode.EVICTION,
    UpgradeState.DRAIN_REQUIRED: WaitCode.EVICTION,
    UpgradeState.POD_RESTART_REQUIRED: WaitCode.UNLOAD,
    UpgradeState.VALIDATION_REQUIRED: WaitCode.VALIDATION,
}
"""What a state waits for if nothing more can be said."""


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """One node in flight, at one moment."""

    node: NodeView
    pool: PoolView
    now: Instant
    record: Record
    lease: Lease

    @property
    def token(self) -> int:
        """Of its lease, and of every op under it."""
        return self.record.token

    @property
    def cordons(self) -> bool:
        """Whether this operation keeps the node cordoned."""
        return cordons(self.record)

    @property
    def build(self) -> Build | None:
        """What this node gets for the target that it is on its way to."""
        return self.pool.build(self.record.target, self.node.variant)

    @property
    def until(self) -> float | None:
        """When this state ends by itself."""
        reported = self.record.state in REPORTED
        return limits.ends(self.record, self.pool, self.now, reported=reported)

    @property
    def overdue(self) -> bool:
        """Whether it should have ended."""
        return limits.passed(self.until, self.now)

    @property
    def deaf(self) -> bool:
        """Whether neither a report can be heard nor a slot be written."""
        return self.now.sight.away_since is not None

    @property
    def new_pod(self) -> DriverPod | None:
        """The driver pod that this operation is to end with."""
        for pod in self.node.driver_pods:
            if not leaving(self.record, pod):
                return pod
        return None


def leaving(record: Record, pod: DriverPod) -> bool:
    """Whether a driver pod has to be gone before another is let in."""
    if record.operation is Operation.REMOVE:
        return True
    return pod.deleting or pod.uid == record.old_pod_uid or pod.label != record.label


def waits(
    f: Flight, code: WaitCode, detail: str, *, who: str | None = None, until: float | None = None
) -> Wait:
    """It waits until the state's limit, or until another moment."""
    return waiting.wait(code, detail, f.now, f.until if until is None else until, who=who)


def looked_at(wait: Wait, at: float, now: Instant) -> Wait | Step:
    """The wait, to be looked at again before it ends by itself."""
    if at <= now.at:
        return wait
    return Step(actions=(), because=wait.detail, wait=wait, wake_at=at)


def for_bus(f: Flight) -> Wait:
    """It waits for NATS; its limits wait too."""
    detail = "nothing is heard of its agents while NATS is away; limits are moved by as much"
    return waiting.wait(WaitCode.BUS, detail, f.now)


def enter(
    f: Flight,
    state: UpgradeState,
    because: str,
    *,
    driver_label: str | None = None,
    cleared: tuple[str, ...] = (),
    **changes: Any,
) -> Step:
    """The step into the next state."""
    record = entered(state, f.record, f.node, f.pool, f.now, **changes)
    return write(f, record, because, driver_label=driver_label, cleared=cleared)


def write(
    f: Flight,
    record: Record,
    because: str,
    *,
    driver_label: str | None = None,
    initially_cordoned: bool | None = None,
    cleared: tuple[str, ...] = (),
) -> Step:
    """A write under the lease: the cordon stays, or is put back where somebody took it away."""
    unsettled = settling(f)
    if unsettled is not None:
        return unsettled
    return written(
        f.node,
        record,
        f.now,
        because=because,
        lease=f.lease,
        cordon=True if f.cordons else cordon_kept(f.node),
        driver_label=driver_label,
        initially_cordoned=initially_cordoned,
        cleared=cleared,
        notes=_cordon_notes(f),
    )


def settling(f: Flight) -> Step | None:
    """Our cordon is so fresh that its taint has yet to follow: a write now would be a conflict."""
    if not f.cordons or not f.node.cordoned or f.node.cordon_taint:
        return None
    settled = f.lease.since + limits.TAINT
    if f.now.at >= settled:
        return None
    detail = "the node lifecycle controller has yet to follow our cordon with its taint"
    code = CODES.get(f.record.state, WaitCode.EVICTION)
    wait = waits(f, code, detail, who=waiting.NOBODY, until=settled)
    return Step(actions=(), because=detail, wait=wait, wake_at=settled)


def uncordoned(f: Flight) -> bool:
    """Whether somebody took the cordon away that this operation needs."""
    return f.cordons and not f.node.cordoned


def _cordon_notes(f: Flight) -> tuple[Note, ...]:
    if not uncordoned(f):
        return ()
    manager = f.node.writers.get(Field.CORDON, "")
    message = f"{manager or 'somebody'} uncordoned the node in the middle of its upgrade"
    note = Note(
        told=Told.CORDON,
        field=Field.CORDON,
        manager=manager,
        after="true",
        message=f"{message}: cordoned again",
    )
    return (note,)
