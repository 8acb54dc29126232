"""Deadlines of states, their extensions, and how current the sources have to be.

A deadline is computed once, when the state is written (docs/states.md#limits). A Freeze extends all
of them; a bus outage extends those of states that a report would end. Capacity is lowered on recent
data only (docs/states.md#freshness).
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView

QUIESCE: Final = 240.0
"""How long a component may take to release the GPU devices: a driver that is in use cannot be
unloaded, and a node that waits for ever is lost to its users."""
UNLOAD: Final = 120.0
"""How long the kernel may refuse the unload, because a process still ends."""
DRIVER_START: Final = 30 * 60.0
"""How long a driver may take to be ready: it may have to pull its image and compile its modules."""
VALIDATION: Final = 600.0
"""How long the validator may take. It answers within minutes, or something hangs."""
RUNTIME_REPORT: Final = 30.0
"""How long evidence waits for a report of the container runtime's configuration that it names."""
MIG: Final = 600.0
"""How long the driver agent may begin to divide the GPUs."""

FORCED: Final = 120.0
"""The node fails if pods that were deleted by force still exist after this time."""

TAINT: Final = 1.0
"""How long a write waits for the taint that follows our cordon, to avoid a conflict."""

RESTARTS: Final = 3
"""The number of restarts of a driver that fails its node."""

STALE_AFTER: Final = 90.0
"""The age from which a source is too old to take capacity away: what it shows may be long gone."""
BACK_OFF: Final = 600.0
"""How long a node is left alone after a release: at once the same obstacle would meet it again."""
LONGEST_BACK_OFF: Final = 6 * 3600.0
"""Each release doubles the time, up to this: a node is tried again several times a day."""


class FlightState(msgspec.Struct, frozen=True):
    """A state of a node under a lease."""

    seconds: Callable[[UpgradePolicy], float]
    """How long it may last; 0: without limit."""
    waits_for: WaitCode
    """What a node waits for in it, where nothing more specific is known."""
    ends_by_report: bool = False
    """A report of an agent ends it: an outage of the bus, which holds reports up, extends it."""


IN_FLIGHT: Final[Mapping[str, FlightState]] = {
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: FlightState(
        lambda upgrade: upgrade.wait_for_completion.timeout_seconds, WaitCode.JOBS
    ),
    UpgradeState.POD_DELETION_REQUIRED: FlightState(
        lambda upgrade: (upgrade.gpu_pod_deletion or upgrade.pod_deletion).timeout_seconds,
        WaitCode.EVICTION,
    ),
    UpgradeState.DRAIN_REQUIRED: FlightState(
        lambda upgrade: upgrade.drain.timeout_seconds, WaitCode.EVICTION
    ),
    UpgradeState.POD_RESTART_REQUIRED: FlightState(
        lambda _: DRIVER_START, WaitCode.UNLOAD, ends_by_report=True
    ),
    UpgradeState.VALIDATION_REQUIRED: FlightState(
        lambda _: VALIDATION, WaitCode.VALIDATION, ends_by_report=True
    ),
}
"""The states of docs/states.md#upgrade in which a node has a lease."""


def deadline(state: str, pool: PoolView, now: Instant) -> float | None:
    """Return when a state that begins now times out; None: never."""
    facts = IN_FLIGHT.get(state)
    seconds = 0.0 if facts is None else facts.seconds(pool.upgrade)
    return now.at + seconds if seconds else None


def bus_outage_seconds(now: Instant, since: float) -> float:
    visibility = now.visibility
    seconds = sum(max(0.0, end - max(begin, since)) for begin, end in visibility.bus_outages)
    if visibility.bus_down_since is not None:
        seconds += max(0.0, now.at - max(visibility.bus_down_since, since))
    return seconds


def deadline_extension(
    record: NodeRecord, pool: PoolView, now: Instant, *, reported: bool
) -> float:
    """Return by how much the deadlines of the record have moved since its state began."""
    frozen = max(0.0, pool.constraints.frozen_seconds - record.frozen_seconds)
    return frozen + (bus_outage_seconds(now, record.since) if reported else 0.0)


def effective_deadline(
    record: NodeRecord, pool: PoolView, now: Instant, *, reported: bool = False
) -> float | None:
    """Return the current deadline; `reported`: a report would end the state."""
    if record.deadline is None:
        return None
    return record.deadline + deadline_extension(record, pool, now, reported=reported)


def is_past(moment: float | None, now: Instant) -> bool:
    return moment is not None and now.at >= moment


def next_back_off(record: NodeRecord) -> float:
    return min(max(BACK_OFF, 2 * record.back_off_seconds), LONGEST_BACK_OFF)


def stale_source(now: Instant) -> str:
    """Return the name of a source that is too old to lower capacity; empty: all are current."""
    oldest = now.at - STALE_AFTER
    for name, source in now.visibility.sources.items():
        if source.proved < oldest:
            return name
    return ""


PROBE_SECONDS: Final = 10.0

PODS: Final = "pods"
"""The source of driver pods."""


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """The sources to probe before a start or a release, and why to wait."""

    probes: tuple[str, ...] = ()
    stale_reason: str = ""
    """Why nothing that lowers capacity starts now, or no node is released; empty: fresh enough."""
    wake_at: float | None = None


def freshness(now: Instant) -> Freshness:
    """Return the sources to probe: each older than PROBE_SECONDS, once, with time to answer."""
    probes: list[str] = []
    pending: list[tuple[float, str]] = []
    for name, source in sorted(now.visibility.sources.items()):
        age = now.at - source.proved
        if age <= PROBE_SECONDS:
            continue
        since = source.probed
        if since is None or since <= source.proved:
            probes.append(name)
        elif now.at - since < PROBE_SECONDS:
            pending.append((since + PROBE_SECONDS, name))
        elif age > STALE_AFTER:
            probes.append(name)
    names = sorted({*probes, *(name for _, name in pending)})
    return Freshness(
        probes=tuple(probes),
        stale_reason=f"waiting for current data on {', '.join(names)}" if names else "",
        wake_at=min(pending)[0] if pending else None,
    )


def pods_freshness(now: Instant) -> Freshness:
    """Return whether the driver pods were proved within PROBE_SECONDS, and until then probes."""
    source = now.visibility.sources.get(PODS)
    if source is None or now.at - source.proved <= PROBE_SECONDS:
        return Freshness()
    answer_due = now.at if source.probed is None else source.probed + PROBE_SECONDS
    is_pending = now.at < answer_due
    return Freshness(
        probes=() if is_pending else (PODS,),
        stale_reason="waiting for current data on the driver pods",
        wake_at=answer_due if is_pending else now.at + PROBE_SECONDS,
    )
