"""A node of the fleet: what its labels, its record and the scheduler say, in words. Pure."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.node import (
    ADOPTED,
    INITIALLY_CORDONED_ANNOTATION,
    ITS_LOG,
    LABEL_EDITED_BY,
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    MIG_STATE_LABEL,
    RECORD_ANNOTATION,
    REQUESTED_BY,
    SKIP_LABEL,
    STATE_LABEL,
    WHOLE_LOG,
    MigState,
    NodeRecord,
    Operation,
    UpgradeState,
    without_details,
)
from libs.contracts.queries import HeldNode, WaitReason
from libs.contracts.rollout import RolloutStatus
from libs.contracts.waits import WaitCode
from libs.fleet.records import held_of, is_in_flight, record_of
from libs.kube import views

GPU_LABEL: Final = "nvidia.com/gpu.present"
"""Discovery writes it, as `true`, on each node that has a GPU."""
VERSION_LABEL: Final = "nvidia.com/cuda.driver-version.full"
LABELS: Final = (STATE_LABEL, SKIP_LABEL, VERSION_LABEL, MIG_STATE_LABEL)
ANNOTATIONS: Final = (
    RECORD_ANNOTATION,
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    INITIALLY_CORDONED_ANNOTATION,
)
"""What a `FleetNode` is read from. Of the others of thousands of Nodes nothing is kept."""
_STARTED_BY = (REQUESTED_BY, ADOPTED, LABEL_EDITED_BY)
_NOT_STARTED = "driver-start: the driver container restarted "
"""Begins the cause of a failure after the old driver was unloaded."""
_LOADED = ("validation: ", "mig: ")
"""Begin the causes of failures after the new driver was loaded."""
_LOGS_COMMAND = re.compile(f"; ({WHOLE_LOG}|{ITS_LOG}): `kubectl logs [^`]*`")


_AT_REST: Final = (
    UpgradeState.UNKNOWN,
    UpgradeState.UPGRADE_REQUIRED,
    UpgradeState.UPGRADE_DONE,
)


class Doing(StrEnum):
    """What a node does, in the words that people read everywhere."""

    FAILED = "failed"
    IN_FLIGHT = "in flight"
    WAITING = "waiting"
    SKIPPED = "skipped"
    """People keep it out of upgrades."""
    UNMANAGED = "not managed"
    CORDONED = "cordoned"
    """It is done, and people keep it cordoned."""
    DONE = "done"


class DriverState(StrEnum):
    """What became of the driver that a node's label names."""

    RUNS = "runs"
    CHANGING = "changing"
    """It is being unloaded, and the next one loaded."""
    NONE = "none"
    """It was unloaded, and the next one does not start."""
    UNKNOWN = "unknown"
    """The operation failed after it began to unload it."""


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node, by its labels and its record."""

    name: str
    pool: str = ""
    state: str = ""
    driver: str = ""
    """The version that runs, or ran last, as its label says."""
    driver_state: DriverState = DriverState.RUNS
    since: float | None = None
    target: str = ""
    """The target of its last attempt."""
    attempt: int = 0
    in_flight: bool = False
    skipped: bool = False
    cause: str = ""
    """Why its last attempt failed, or why this one was started."""
    operation: str = ""
    """What is done to it, or was last: an `Operation`."""
    held: HeldNode | None = None
    """The lease that a person has on it, or waits for."""
    cordoned: bool = False
    was_cordoned: bool = False
    """A person cordoned it before the operation on it, and it stays so afterwards."""
    wanted: str = ""
    """The version that its pool wants, where its state is that of an earlier one."""
    trouble: str = ""
    """Why its new driver does not run, as its pod shows it; empty: nothing is wrong, or its pod was
    not read."""
    because: str = ""
    """What it waits for, as the scheduler says; empty: nothing, or the scheduler was not asked."""
    mig: str = ""
    """How far the division is that its label asks for: a `MigState`; empty: none is asked for."""

    @property
    def is_divided(self) -> bool:
        """Whether its GPUs are divided as its label asks, if it does."""
        return self.mig in ("", MigState.SUCCESS)


class GpuUse(msgspec.Struct, frozen=True):
    """The GPUs of a node, as telemetry measures them."""

    busy: int
    total: int
    hottest: float | None = None
    """In degrees Celsius."""


class LastCommand(msgspec.Struct, frozen=True):
    """What an agent was told last, and what became of it."""

    text: str
    agent: str
    at: float


class FollowedNode(FleetNode, frozen=True, kw_only=True, omit_defaults=True):
    """A node that is followed change by change, with what is not on its Node."""

    doing: Doing
    deadline: float | None = None
    """When the state times out."""
    wait: WaitReason | None = None
    command: LastCommand | None = None
    unready: bool = False
    """The Node says that it is not Ready."""
    health: Mapping[str, int] = {}
    """The number of its GPUs by health."""
    use: GpuUse | None = None


def doing_of(node: FleetNode, wait: WaitReason | None = None) -> Doing:
    """Return what a node does.

    A person's skip comes before the wait that follows from it, and a wait before `done`: a node
    that is done with an earlier driver still waits for the next one.
    """
    if node.state == UpgradeState.UPGRADE_FAILED:
        return Doing.FAILED
    if node.in_flight or node.state not in _AT_REST:
        return Doing.IN_FLIGHT
    if node.skipped or (wait is not None and wait.code is WaitCode.SKIPPED):
        return Doing.SKIPPED
    if wait is not None:
        return Doing.WAITING
    if node.state == UpgradeState.UPGRADE_DONE:
        return Doing.CORDONED if node.cordoned else Doing.DONE
    return Doing.WAITING if node.state else Doing.UNMANAGED


def fleet_node(metadata: views.Metadata, *, cordoned: bool = False) -> FleetNode:
    """Return a node by its labels and its record."""
    record, labels, in_flight = record_of(metadata), metadata.labels, is_in_flight(metadata)
    return FleetNode(
        name=metadata.name,
        pool=record.pool if record else "",
        state=labels.get(STATE_LABEL, ""),
        driver=labels.get(VERSION_LABEL, ""),
        driver_state=DriverState.RUNS if record is None else driver_state(record),
        since=record.since or None if record else None,
        target=record.target if record else "",
        attempt=record.attempt if record else 0,
        in_flight=in_flight,
        held=held_of(metadata),
        cordoned=cordoned,
        was_cordoned=in_flight and INITIALLY_CORDONED_ANNOTATION in metadata.annotations,
        mig=labels.get(MIG_STATE_LABEL, ""),
        skipped=labels.get(SKIP_LABEL) == "true",
        cause=record.cause if record else "",
        operation=record.operation or "" if record else "",
    )


def driver_state(record: NodeRecord) -> DriverState:
    """Return what became of the driver: its label keeps the last version that was loaded."""
    if not record.started or record.operation is Operation.VALIDATE:
        return DriverState.RUNS
    if record.state == UpgradeState.POD_RESTART_REQUIRED:
        return DriverState.CHANGING
    if record.state != UpgradeState.UPGRADE_FAILED or record.cause.startswith(_LOADED):
        return DriverState.RUNS
    return DriverState.NONE if record.cause.startswith(_NOT_STARTED) else DriverState.UNKNOWN


def driver_text(node: FleetNode) -> str:
    """Return the driver of a node in words; the first word alone tells whether there is one."""
    if node.driver_state is DriverState.CHANGING:
        return node.driver_state.value
    if node.driver_state in (DriverState.NONE, DriverState.UNKNOWN):
        before = f" (was {node.driver})" if node.driver else ""
        return f"{node.driver_state.value}{before}"
    return node.driver


def cause_text(node: FleetNode) -> str:
    """Return the cause of a node in words, as far as a row has room: `why` and events have all of
    it. That of an attempt that is over is an earlier one.
    """
    if not node.cause or node.state == UpgradeState.UPGRADE_FAILED:
        return without_logs_command(node.cause)
    if node.cause.startswith(_STARTED_BY):
        return node.cause
    return f"earlier attempt: {without_details(node.cause)}"


def without_logs_command(text: str) -> str:
    """Return a text without the command that shows a driver's whole log, as a row has no room."""
    return _LOGS_COMMAND.sub("", text)


def short_notes(node: FleetNode) -> tuple[str, ...]:
    """Return what else is to be known of a node, in the words of status, why, watch and the page;
    empty texts: nothing.
    """
    return (f"attempt {node.attempt}" if node.attempt > 1 else "",)


def with_wanted(node: FleetNode, status: RolloutStatus) -> FleetNode:
    """Add the version that its pool wants to a node that is done with an earlier one."""
    is_done = node.state == UpgradeState.UPGRADE_DONE
    if not is_done or not status.target or is_done_for(node, status.target):
        return node
    return msgspec.structs.replace(node, wanted=status.version)


def is_done_for(node: FleetNode, target: str) -> bool:
    """Whether the node is done with this target of its pool, and not with an earlier one."""
    return node.state == UpgradeState.UPGRADE_DONE and node.target == target


def is_settled(node: FleetNode) -> bool:
    """Whether there is nothing to tell about a node in the overview."""
    at_rest = node.state in (UpgradeState.UPGRADE_DONE, UpgradeState.UNKNOWN)
    is_kept = node.cordoned or node.skipped
    return at_rest and node.is_divided and not (node.in_flight or is_kept or node.wanted)
