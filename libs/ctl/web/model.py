"""What the page shows, as data. Times are Unix seconds. Pure.

Texts come from nodes and people: they lose what is not printable here, and the page only ever
writes them as text.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.device import UNKNOWN
from libs.contracts.events import WaitEvent
from libs.contracts.health import HealthState
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.ctl.answers import EventLine, Pool, Source
from libs.ctl.node_rows import NodeRow, cause_text, driver_text
from libs.ctl.text import name_versions, printable
from libs.kube import views

GPU_LABEL: Final = "nvidia.com/gpu.present"
MOST_SICK: Final = 500
"""GPUs that are not healthy and are sent one by one; the page says how many there are in all."""


class Kind(StrEnum):
    """What a node does, in the few words that the map has a sign for."""

    DONE = "done"
    MOVING = "moving"
    WAITING = "waiting"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNMANAGED = "unmanaged"


class Wait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a node waits, as the scheduler's last event says."""

    code: str
    detail: str
    since: float
    until: float | None = None
    who: str = ""


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node on the map."""

    name: str
    kind: Kind
    pool: str = ""
    state: str = ""
    driver: str = ""
    since: float | None = None
    attempt: int = 0
    cause: str = ""
    wait: Wait | None = None
    unready: bool = False
    cordoned: bool = False
    gpus: Mapping[str, int] = {}
    """The number of GPUs by health."""


class Bar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node on the timeline: its last move to the target of its pool, and the plan for it."""

    node: str
    pool: str
    target: str
    start: float | None = None
    """None: not started, or not recorded where the events are missing."""
    end: float | None = None
    outcome: str = ""
    steps: tuple[tuple[str, float], ...] = ()
    """Each state that it entered, and when."""
    planned: tuple[float, float] | None = None
    """Start and end by the last plan that was made before it started."""


class SickGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU that is not healthy."""

    node: str
    index: int
    product: str
    health: str
    because: str = ""
    remedy: str = ""


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs in numbers, and those that are not healthy."""

    products: Mapping[str, Mapping[str, int]]
    """The number of GPUs by product and health."""
    sick: tuple[SickGpu, ...]
    sick_in_all: int


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed since a revision; or everything."""

    revision: int
    at: float
    whole: bool = False
    """Whether this replaces what the page has."""
    nodes: tuple[Cell, ...] = ()
    bars: tuple[Bar, ...] = ()
    gone: tuple[str, ...] = ()
    """Names of Nodes that were deleted."""
    barless: tuple[str, ...] = ()
    """Names of nodes that the timeline shows no longer."""
    pools: tuple[Pool, ...] | None = None
    gpus: Gpus | None = None
    events: tuple[EventLine, ...] = ()
    sources: tuple[Source, ...] = ()


def is_shown(metadata: views.Metadata) -> bool:
    """Whether a Node has GPUs, or an upgrade state."""
    return metadata.labels.get(GPU_LABEL) == "true" or bool(metadata.labels.get(STATE_LABEL))


def cell_of(
    node: NodeRow, *, wait: Wait | None, ready: bool, cordoned: bool, gpus: Mapping[str, int]
) -> Cell:
    """Return a node on the map, from its labels and record and the scheduler's last wait."""
    kind = _kind(node, wait)
    return Cell(
        name=printable(node.name),
        kind=kind,
        pool=printable(node.pool),
        state=printable(node.state),
        driver=printable(driver_text(node)),
        since=node.since,
        attempt=node.attempt,
        cause=printable(cause_text(node)),
        wait=wait,
        unready=not ready,
        cordoned=cordoned,
        gpus=gpus,
    )


def _kind(node: NodeRow, wait: Wait | None) -> Kind:
    if node.state == UpgradeState.UPGRADE_FAILED:
        return Kind.FAILED
    if node.in_flight:
        return Kind.MOVING
    if node.skipped:
        return Kind.SKIPPED
    if wait is not None:
        return Kind.WAITING
    if node.state == UpgradeState.UPGRADE_DONE:
        return Kind.DONE
    return Kind.WAITING if node.state else Kind.UNMANAGED


def wait_of(event: WaitEvent, versions: Mapping[str, str]) -> Wait | None:
    """Return the wait that an event tells of; None if it tells of a wait's end."""
    if event.code is None:
        return None
    return Wait(
        code=printable(event.code.value),
        detail=printable(name_versions(event.detail, versions)),
        since=event.since,
        until=event.until,
        who=printable(event.who),
    )


def clean_event(event: EventLine) -> EventLine:
    """Return the event without characters that are not printable."""
    return msgspec.structs.replace(
        event,
        writer=printable(event.writer),
        node=printable(event.node),
        message=printable(event.message),
    )


def clean_pool(pool: Pool) -> Pool:
    """Return the pool without characters that are not printable."""
    return msgspec.structs.replace(
        pool,
        name=printable(pool.name),
        version=printable(pool.version),
        target=printable(pool.target),
        because=printable(pool.because),
        budget=printable(pool.budget),
    )


def is_sick(health: str) -> bool:
    """Whether a person should look at a GPU; one without a verdict is only counted."""
    return health not in (HealthState.OK, UNKNOWN)
