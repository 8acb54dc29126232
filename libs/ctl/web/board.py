"""What the page shows now, and what of it changed since a revision. Does no I/O."""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from libs.ctl.web.model import Bar, Change, Gpus, Row
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source

T = TypeVar("T")

MOST_EVENTS: Final = 500
"""Events that the page can show; `sluice events` has all."""


class Board:
    """Keeps rows by name. Each change raises `revision`; a reader asks for those since its own."""

    def __init__(self) -> None:
        self.revision = 0
        self.nodes: dict[str, Row] = {}
        self.bars: dict[str, Bar] = {}
        self.pools: tuple[Pool, ...] = ()
        self.gpus = Gpus(products={}, sick=(), sick_in_all=0)
        self.events: deque[tuple[int, EventLine]] = deque(maxlen=MOST_EVENTS)
        self._pools_at = 0
        self._gpus_at = 0
        self._nodes_at: dict[str, int] = {}
        """Revision of the last change by name, oldest first; also of nodes that are gone."""
        self._bars_at: dict[str, int] = {}
        self._forgotten = 0
        """Changes up to this revision may be incomplete: removed rows were forgotten."""
        self._readers: set[Callable[[], None]] = set()

    def on_change(self, reader: Callable[[], None]) -> Callable[[], None]:
        """Call `reader` after each change, until the returned function is called."""
        self._readers.add(reader)
        return lambda: self._readers.discard(reader)

    def put_node(self, name: str, node: Row | None) -> None:
        """Set a node on the map, or remove it."""
        if self.nodes.get(name) != node:
            _put(self.nodes, name, node)
            self._touch(self._nodes_at, name)

    def put_bar(self, name: str, bar: Bar | None) -> None:
        """Set a node on the timeline, or remove it."""
        if self.bars.get(name) != bar:
            _put(self.bars, name, bar)
            self._touch(self._bars_at, name)

    def put_pools(self, pools: tuple[Pool, ...]) -> None:
        if pools != self.pools:
            self.pools, self._pools_at = pools, self._advance()

    def put_gpus(self, gpus: Gpus) -> None:
        if gpus != self.gpus:
            self.gpus, self._gpus_at = gpus, self._advance()

    def add_event(self, event: EventLine) -> None:
        self.events.append((self._advance(), event))

    def change_since(self, revision: int, *, at: float, sources: tuple[Source, ...]) -> Change:
        """Return what changed since a revision; everything if that is not known any more."""
        if revision < self._forgotten or revision > self.revision or revision == 0:
            return self._everything(at, sources)
        nodes = _later(self._nodes_at, revision)
        bars = _later(self._bars_at, revision)
        return Change(
            revision=self.revision,
            at=at,
            nodes=tuple(self.nodes[name] for name in nodes if name in self.nodes),
            gone=tuple(name for name in nodes if name not in self.nodes),
            bars=tuple(self.bars[name] for name in bars if name in self.bars),
            barless=tuple(name for name in bars if name not in self.bars),
            pools=self.pools if self._pools_at > revision else None,
            gpus=self.gpus if self._gpus_at > revision else None,
            events=tuple(event for number, event in self.events if number > revision),
            sources=sources,
        )

    def _everything(self, at: float, sources: tuple[Source, ...]) -> Change:
        """Return all rows, for a reader that has none or whose revision is not known any more."""
        return Change(
            revision=self.revision,
            at=at,
            whole=True,
            nodes=tuple(self.nodes.values()),
            bars=tuple(self.bars.values()),
            pools=self.pools,
            gpus=self.gpus,
            events=tuple(event for _, event in self.events),
            sources=sources,
        )

    def _touch(self, at: dict[str, int], name: str) -> None:
        at.pop(name, None)
        at[name] = self._advance()
        rows = self.nodes if at is self._nodes_at else self.bars
        if len(at) > 2 * len(rows) + 1000:  # many are gone, in a fleet that grows and shrinks
            self._forgotten = self.revision
            for each in [each for each in at if each not in rows]:
                del at[each]

    def _advance(self) -> int:
        self.revision += 1
        for reader in self._readers:
            reader()
        return self.revision


class Encoder:
    """Encode changes once for all readers that are equally far."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._last: tuple[int, int, float, bytes] = (-1, -1, 0.0, b"")
        self._encoder = msgspec.json.Encoder()

    def since(self, revision: int, *, at: float, sources: tuple[Source, ...]) -> bytes:
        """Return the change as JSON, which has no line breaks."""
        now, (since, to, when, data) = self._board.revision, self._last
        if (since, to) != (revision, now) or at - when > 1.0 or at < when:
            change = self._board.change_since(revision, at=at, sources=sources)
            data = self._encoder.encode(change)
            self._last = (revision, now, at, data)
        return data


def _put(rows: dict[str, T], name: str, row: T | None) -> None:
    if row is None:
        rows.pop(name, None)
    else:
        rows[name] = row


def _later(at: dict[str, int], revision: int) -> list[str]:
    """Return the names changed after a revision, the oldest change first."""
    found: list[str] = []
    for name in reversed(at):
        if at[name] <= revision:
            break
        found.append(name)
    return found[::-1]
