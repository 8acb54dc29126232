"""A reader's copy of STATE: the last report of each kind from every component of every node.

It keeps what it has while it cannot see: a report goes only when a whole fresh reading did not
repeat it, when its writer says something of another version, or when it is forgotten by name. What
is in a body is its reader's business, and so is of which node uid and boot it is.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Self, TypeAlias

import msgspec

from libs.bus.port import Bus, Closable, LastPerSubject, StoredMessage
from libs.contracts import streams, subjects
from libs.contracts.message import MAJOR, MalformedMessage, decode
from libs.contracts.reports import Report
from libs.contracts.subjects import State
from libs.runtime.clock import Clock


class IgnoredReport(StrEnum):
    """Why a message in STATE is no report."""

    UNREADABLE = "unreadable"
    OTHER_VERSION = "other-version"
    FOREIGN = "foreign"
    """Its envelope names somebody else than the subject: nobody but its writer may be believed."""


ReportWatcher: TypeAlias = Callable[[State, Report | None, Report | None], None]
"""Takes whose report it is, what it was and what it is. Must not block."""


class _Held(msgspec.Struct):
    subject: str
    of: State
    data: bytes
    report: Report
    reading: int


class _Version(msgspec.Struct):
    v: int = MAJOR


class ReportCache:
    """Follows STATE while it is entered; every question is answered from memory."""

    def __init__(self, *, bus: Bus, clock: Clock, cluster: str) -> None:
        self._bus = bus
        self._clock = clock
        self._cluster = cluster
        self._pattern = subjects.of_cluster(State, cluster)
        self._held: dict[str, _Held] = {}
        self._nodes: dict[str, dict[tuple[str, str, str], _Held]] = {}
        self._watchers: list[ReportWatcher] = []
        self._reading = 0
        self._synced = asyncio.Event()
        self._current = False
        self._changed = clock.monotonic()
        self._away = 0.0
        self._following: Closable | None = None
        self.ignored: Counter[IgnoredReport] = Counter()
        self.last_ignored = ""
        """The last message that was ignored, and why: for a person."""

    async def __aenter__(self) -> Self:
        self._following = await self._bus.follow(
            streams.STATE, self._pattern, self, start=LastPerSubject()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following is not None:
            await self._following.close()

    # What is known.

    def get(self, node: str, component: str, kind: str, asker: str = "") -> Report | None:
        """The last report of this kind; of any node uid and boot."""
        held = self._nodes.get(node, {}).get((component, kind, asker))
        return held.report if held else None

    def nodes(self) -> Iterable[str]:
        """Every node that has a report, in the order in which they were met."""
        return self._nodes.keys()

    def reports(self, node: str) -> list[tuple[State, Report]]:
        """All reports of a node, each with where it stands."""
        return [(held.of, held.report) for held in self._nodes.get(node, {}).values()]

    def on_change(self, watcher: ReportWatcher) -> Callable[[], None]:
        """Call `watcher` when a report's bytes change, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def forget(self, node: str) -> None:
        """Drop what a node said: it was deleted, and its state purged."""
        for held in tuple(self._nodes.get(node, {}).values()):
            self._drop(held)

    # How far it can be relied upon.

    async def synced(self) -> None:
        """Return once everything that the stream held has been read."""
        await self._synced.wait()

    @property
    def age(self) -> float:
        """Seconds since this was last known to be current: 0 if it is, infinite if it never was."""
        if self._current:
            return 0.0
        return self._clock.monotonic() - self._changed if self._synced.is_set() else math.inf

    @property
    def stale_seconds(self) -> float:
        """Seconds for which this was not current, in all: deadlines on reports grow by it."""
        return self._away + (0.0 if self._current else self._clock.monotonic() - self._changed)

    # What the bus calls (`Follower`).

    def began(self) -> None:
        """A reading from the start: everything will be repeated."""
        self._reading += 1
        self._set_current(False)

    def received(self, message: StoredMessage) -> None:
        """Take a report in, unless it is what is known already, or no report."""
        held = self._held.get(message.subject)
        if held is not None:
            held.reading = self._reading
            if held.data == message.data:
                return
        of = held.of if held is not None else _parts(message.subject, self._cluster)
        try:
            report = decode(Report, message.data)
        except MalformedMessage as error:
            why = _version_or_bytes(message.data)
            self._ignore(why, message, str(error))
            if held is not None and why is IgnoredReport.OTHER_VERSION:
                self._drop(held)  # its writer says something else by now
            return
        if of is None or (report.node, report.component, report.kind) != (
            of.node,
            of.component,
            of.kind,
        ):
            says = f"it says it is {report.kind} of {report.component} on {report.node!r}"
            self._ignore(IgnoredReport.FOREIGN, message, says)
            return
        self._take(held, of, message, report)

    def caught_up(self) -> None:
        """The reading is complete: what it did not repeat is gone."""
        for held in [held for held in self._held.values() if held.reading != self._reading]:
            self._drop(held)
        self._set_current(True)
        self._synced.set()

    def lost(self) -> None:
        """Nothing is heard for now, and nothing is dropped for that."""
        self._set_current(False)

    def _take(self, held: _Held | None, of: State, message: StoredMessage, report: Report) -> None:
        before = None
        if held is None:
            held = _Held(message.subject, of, message.data, report, self._reading)
            self._held[message.subject] = held
            place = (of.component, of.kind, of.asker)
            self._nodes.setdefault(of.node, {})[place] = held
        else:
            before = held.report
            held.data, held.report = message.data, report
        for watcher in tuple(self._watchers):
            watcher(of, before, report)

    def _drop(self, held: _Held) -> None:
        of = held.of
        del self._held[held.subject]
        reports = self._nodes[of.node]
        del reports[of.component, of.kind, of.asker]
        if not reports:
            del self._nodes[of.node]
        for watcher in tuple(self._watchers):
            watcher(of, held.report, None)

    def _ignore(self, why: IgnoredReport, message: StoredMessage, words: str) -> None:
        self.ignored[why] += 1
        self.last_ignored = f"{message.subject} at {message.sequence}: {words}"

    def _set_current(self, current: bool) -> None:
        if current == self._current:
            return
        now = self._clock.monotonic()
        if current:
            self._away += now - self._changed
        self._current = current
        self._changed = now


def _parts(subject: str, cluster: str) -> State | None:
    # `subjects.parse` checks each token with a regular expression: ten times the work of all the
    # rest here. The server let through only this plane and cluster, and an envelope must agree.
    parts = subject.split(".")[4:]
    if len(parts) not in (3, 4):
        return None
    node = subjects.NO_NODE if parts[0] == "-" else parts[0].replace("_", ".")
    asker = parts[3] if len(parts) == 4 else ""
    return State(cluster=cluster, node=node, component=parts[1], kind=parts[2], asker=asker)


def _version_or_bytes(data: bytes) -> IgnoredReport:
    try:
        version = msgspec.json.decode(data, type=_Version).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return IgnoredReport.UNREADABLE
    return IgnoredReport.UNREADABLE if version == MAJOR else IgnoredReport.OTHER_VERSION
