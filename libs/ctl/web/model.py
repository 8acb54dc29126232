"""What the page shows, as data. Times are Unix seconds. Pure.

Texts come from nodes and people: they lose what is not printable here, and the page only ever
writes them as text.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec

from libs.contracts.device import UNKNOWN
from libs.contracts.health import HealthState
from libs.contracts.queries import WaitReason
from libs.ctl.follow.objects import FollowedDevice
from libs.ctl.text import plural, printable
from libs.fleet.gpus import FleetGpu
from libs.fleet.node import Doing, FleetNode, FollowedNode, cause_text, driver_text, short_notes
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source

_T = TypeVar("_T", bound=msgspec.Struct)

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
    row = Row(
        name=node.name,
        doing=node.doing,
        pool=node.pool,
        state=node.state,
        since=node.since,
        driver=driver_text(node),
        wait=node.wait and clean(node.wait),
        note=note_of(node, unready=node.unready, health=node.health),
    )
    return clean(row)


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


def clean(row: _T) -> _T:
    """Return a row whose texts have no characters that are not printable."""
    texts = {name: getattr(row, name) for name in row.__struct_fields__}
    changed: dict[str, Any] = {
        name: type(text)(printable(text))
        for name, text in texts.items()
        if isinstance(text, str) and not text.isprintable()
    }
    return msgspec.structs.replace(row, **changed) if changed else row


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
    spec, health = device.spec, device.status.health
    gpu = FleetGpu(
        node=spec.node,
        index=spec.index,
        product=spec.product,
        health=device.health,
        because=(health.message or health.reason) if health else "",
        remedy=health.remedy if health else "",
    )
    return clean(gpu)
