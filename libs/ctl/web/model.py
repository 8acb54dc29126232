"""What the page shows, as data. Times are Unix seconds. Pure.

Texts come from nodes and people: they lose what is not printable here, and the page only ever
writes them as text.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from libs.contracts.device import UNKNOWN
from libs.contracts.health import HealthState
from libs.contracts.queries import WaitReason
from libs.contracts.waits import WaitCode
from libs.ctl.follow.objects import FollowedDevice
from libs.ctl.text import plural, printable
from libs.fleet.gpus import FleetGpu
from libs.fleet.node import Doing, FleetNode, FollowedNode, cause_text, driver_text, short_notes
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source

MOST_SICK: Final = 500
"""GPUs that are not healthy and are sent one by one; the page says how many there are in all."""

_WELL: Final = (HealthState.OK, UNKNOWN)
"""The health of GPUs that nobody has to look at."""


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

    @property
    def has_begun(self) -> bool:
        return self.start is not None or self.end is not None


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node on the map and in the table, in words."""

    name: str
    doing: Doing
    pool: str = ""
    state: str = ""
    since: float | None = None
    driver: str = ""
    wait: WaitReason | None = None
    note: str = ""
    """What else is to be known of it."""


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs in numbers, and those that are not healthy."""

    products: Mapping[str, Mapping[str, int]]
    """The number of GPUs by product and health."""
    sick: tuple[FleetGpu, ...]
    sick_in_all: int


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed since a revision; or everything."""

    revision: int
    at: float
    whole: bool = False
    """Whether this replaces what the page has."""
    nodes: tuple[Row, ...] = ()
    bars: tuple[Bar, ...] = ()
    gone: tuple[str, ...] = ()
    """Names of Nodes that were deleted."""
    barless: tuple[str, ...] = ()
    """Names of nodes that the timeline shows no longer."""
    pools: tuple[Pool, ...] | None = None
    gpus: Gpus | None = None
    events: tuple[EventLine, ...] = ()
    sources: tuple[Source, ...] = ()


def row_of(node: FollowedNode) -> Row:
    """Return a node as the page shows it. A fleet of thousands is sent whole to each new reader."""
    wait = node.wait
    return Row(
        name=printable(node.name),
        doing=node.doing,
        pool=printable(node.pool),
        state=printable(node.state),
        since=node.since,
        driver=printable(driver_text(node)),
        wait=wait and clean_wait(wait),
        note=printable(note_of(node, unready=node.unready, health=node.health)),
    )


def note_of(node: FleetNode, *, unready: bool, health: Mapping[str, int]) -> str:
    """Return what else is to be known of a node, in a few words; `health` counts its GPUs by it."""
    sick = (
        f"{plural(count, 'GPU')} {state}" for state, count in health.items() if state not in _WELL
    )
    notes = (
        "Node not Ready" if unready else "",
        "cordoned" if node.cordoned else "",
        *sick,
        *short_notes(node),
        cause_text(node),
    )
    return "; ".join(filter(None, notes))


def clean_wait(wait: WaitReason) -> WaitReason:
    """Return the wait without characters that are not printable."""
    return msgspec.structs.replace(
        wait,
        code=WaitCode(printable(wait.code.value)),
        detail=printable(wait.detail),
        who=printable(wait.who),
    )


def gpus_of(products: Mapping[str, Mapping[str, int]], sick: Collection[FollowedDevice]) -> Gpus:
    """Return all GPUs in numbers, and the first of those to look at."""
    ordered = sorted(sick, key=lambda each: (each.spec.node, each.spec.index))
    return Gpus(
        products={
            printable(name): dict(sorted(counts.items()))
            for name, counts in sorted(products.items())
        },
        sick=tuple(map(_sick_gpu, ordered[:MOST_SICK])),
        sick_in_all=len(ordered),
    )


def _sick_gpu(device: FollowedDevice) -> FleetGpu:
    """Return a GPU to look at, in texts that are printable: agents report them."""
    spec, health = device.spec, device.status.health
    return FleetGpu(
        node=printable(spec.node),
        index=spec.index,
        product=printable(spec.product),
        health=device.health,
        because=printable((health.message or health.reason) if health else ""),
        remedy=printable(health.remedy if health else ""),
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
