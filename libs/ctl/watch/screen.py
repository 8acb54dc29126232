"""What a frame shows, and what the person chose: a node, a layout, a panel. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from libs.fleet.node import Doing, FollowedNode
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source

_URGENCY: Final = (Doing.FAILED, Doing.IN_FLIGHT, Doing.WAITING)
"""What the nodes do that are listed below the map, the most urgent first."""


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller tells of a fleet of its own, for which the address says little."""

    title: str
    """In place of the cluster's address."""
    help: Sequence[str]
    """Lines above the list of keys."""


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame shows."""

    address: str
    pools: Sequence[Pool]
    nodes: Sequence[FollowedNode]
    """By name, numbers in it as numbers: node-2 is before node-10."""
    events: Sequence[EventLine]
    """The oldest first."""
    sources: Sequence[Source]
    is_measured: bool = False
    """Whether telemetry is read, which fills two columns once it answers."""
    guide: Guide | None = None


class Layout(StrEnum):
    """How nodes are shown. Automatic: as rows where all have room, otherwise as a map."""

    AUTOMATIC = ""
    ROWS = "rows"
    MAP = "map"


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Text in the place of the nodes."""

    title: str
    lines: Sequence[str]
    top: int = 0
    """The first line that is shown."""
    asks: bool = False
    """Whether it is a question, which only `y` affirms."""
    node: str = ""
    """The node that it tells about, which is asked about again while it is open."""
    opened: float = 0.0
    """When the first answer about that node came."""


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    selected: str = ""
    """The name of a node; empty: the first."""
    layout: Layout = Layout.AUTOMATIC
    panel: Panel | None = None
    message: str = ""
    """What the last key led to, in place of the list of keys."""
    places: tuple[str, ...] = ()
    """Nodes in the list below the map; empty names are free places."""


def selected_index(nodes: Sequence[FollowedNode], screen: Screen) -> int:
    """Return the place of the selected node; the first if it is gone or none is selected."""
    names = (index for index, node in enumerate(nodes) if node.name == screen.selected)
    return next(names, 0) if screen.selected else 0


def move(nodes: Sequence[FollowedNode], screen: Screen, by: int) -> Screen:
    """Select the node so many places further, at most the last."""
    if not nodes:
        return screen
    index = min(len(nodes) - 1, max(0, selected_index(nodes, screen) + by))
    return msgspec.structs.replace(screen, selected=nodes[index].name)


def scroll(panel: Panel, by: int, *, last: int) -> Panel:
    """Show the lines of a panel from another one on, at most the `last`."""
    return msgspec.structs.replace(panel, top=min(last, max(0, panel.top + by)))


def with_newer_answer(screen: Screen, panel: Panel) -> Screen:
    """Show a newer answer about the node of the open panel, scrolled as that is."""
    shown = screen.panel
    if shown is None or (shown.node, shown.opened) != (panel.node, panel.opened):
        return screen
    return msgspec.structs.replace(screen, panel=msgspec.structs.replace(panel, top=shown.top))


def arrange(nodes: Sequence[FollowedNode], screen: Screen, *, room: int) -> Screen:
    """Give places in the list below the map to nodes that are not done.

    A node keeps its place until it is done, so that no line jumps; a free place goes to the most
    urgent node without one.
    """
    urgent = {doing: rank for rank, doing in enumerate(_URGENCY)}
    wanted = {node.name: urgent[node.doing] for node in nodes if node.doing in urgent}
    kept = [name if name in wanted else "" for name in screen.places[:room]]
    kept += [""] * (room - len(kept))
    placed = set(kept)
    waiting = sorted((name for name in wanted if name not in placed), key=wanted.__getitem__)
    waiting.reverse()
    for index, name in enumerate(kept):
        if not name and waiting:
            kept[index] = waiting.pop()
    for index, name in enumerate(kept):
        # A place is taken from a node that only waits if something more urgent has none.
        if not waiting or wanted[waiting[-1]] >= urgent[Doing.WAITING]:
            break
        if wanted[name] >= urgent[Doing.WAITING]:
            kept[index] = waiting.pop()
    return msgspec.structs.replace(screen, places=tuple(kept))
