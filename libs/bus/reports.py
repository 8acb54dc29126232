"""A cache of STATE: the last report of each kind from every component of every node.

The cache keeps its reports during outages. A report is dropped when a complete new reading of the
stream did not repeat it, when a message of another version replaces it, or by `forget`. A stream
that was created again drops none before agents have repeated theirs. Readers must check the node
uid and boot of a report.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, Self, TypeAlias

import msgspec

from libs.bus.port import Bus, Closable, LastPerSubject, StoredMessage
from libs.bus.rates import WINDOW, SenderRates
from libs.bus.recreated import RecreatedStream
from libs.contracts import subjects
from libs.contracts.identities import COMPONENTS
from libs.contracts.message import MAJOR, MalformedMessage, decode, version_of
from libs.contracts.reports import Report
from libs.contracts.senders import report_subjects
from libs.contracts.subjects import ANY, State
from libs.runtime.clock import Clock

MOST_REPORTS: Final = 20
"""Reports of one kind of a component that are read in a second. Of more only the last counts, read
when the second is over: a node that floods STATE must not keep the event loop decoding them."""


class IgnoredReport(StrEnum):
    """Why a message in STATE was not accepted as a report."""

    UNREADABLE = "unreadable"
    OTHER_VERSION = "other-version"
    UNKNOWN = "unknown"
    """Its component does not send this kind."""
    TOO_LARGE = "too-large"
    FOREIGN = "foreign"
    """The envelope differs from the subject; the server authenticates the subject alone."""


ReportWatcher: TypeAlias = Callable[[State, Report | None, Report | None], None]
"""Called with the parsed subject and the report before and after. Must not block."""


class _Stored(msgspec.Struct):
    subject: str
    parts: State
    data: bytes
    report: Report
    reading: int


_KNOWN = frozenset(
    (each.component, each.kind, each.asker)
    for component in COMPONENTS
    for each in report_subjects(component, cluster=ANY, node=ANY)
)


class ReportCache:
    """Follows STATE while it is entered; every method reads from memory.

    Only reports of known kinds and permitted sizes are kept, so a node's share is limited.
    """

    def __init__(self, *, bus: Bus, clock: Clock, cluster: str) -> None:
        self._bus = bus
        self._clock = clock
        self._cluster = cluster
        self._pattern = subjects.cluster_pattern(State, cluster)
        self._by_subject: dict[str, _Stored] = {}
        self._by_node: dict[str, dict[tuple[str, str, str], _Stored]] = {}
        self._watchers: list[ReportWatcher] = []
        self._reading = 0
        self._stream = RecreatedStream(clock)
        self._synced = asyncio.Event()
        self._is_current = False
        self._changed = clock.monotonic()
        self._stale_before = 0.0
        self._subscription: Closable | None = None
        self._deferred: dict[str, StoredMessage] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.rates: Final = SenderRates(clock, most=MOST_REPORTS)
        self.ignored: Counter[IgnoredReport] = Counter()

    async def __aenter__(self) -> Self:
        self._subscription = await self._bus.follow(
            subjects.STATE, self._pattern, self, start=LastPerSubject()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self._subscription.close()
        if self._timer is not None:
            self._timer.cancel()

    def get(self, node: str, component: str, kind: str, asker: str = "") -> Report | None:
        """Return the last report of this kind, of any node uid and boot."""
        stored = self._by_node.get(node, {}).get((component, kind, asker))
        return stored.report if stored else None

    def nodes(self) -> Iterable[str]:
        """Return every node that has a report, oldest first."""
        return self._by_node.keys()

    def reports(self, node: str) -> list[tuple[State, Report]]:
        """Return all reports of a node, each with its parsed subject."""
        return [(stored.parts, stored.report) for stored in self._by_node.get(node, {}).values()]

    def flood_rate(self, node: str, component: str) -> float:
        """Return the reports in a second that this component sent lately if too many, or 0."""
        of_component = State(cluster=self._cluster, node=node, component=component, kind="x")
        return self.rates.rate_of(str(of_component).removesuffix("x"))

    def on_change(self, watcher: ReportWatcher) -> Callable[[], None]:
        """Call `watcher` when a report's bytes change, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def forget(self, node: str) -> None:
        """Drop the reports of a deleted node, whose state was purged."""
        self._read_deferred()  # or a report of the node would come back with them
        for stored in tuple(self._by_node.get(node, {}).values()):
            self._drop(stored)

    async def synced(self) -> None:
        """Return once everything that the stream holds has been read."""
        await self._synced.wait()

    @property
    def age(self) -> float:
        """Seconds since the cache was last current: 0 if it is, infinite if it never was."""
        if self._is_current:
            return 0.0
        return self._clock.monotonic() - self._changed if self._synced.is_set() else math.inf

    @property
    def stale_seconds(self) -> float:
        """Total seconds for which the cache was not current; deadlines on reports grow by it."""
        return self._stale_before + (
            0.0 if self._is_current else self._clock.monotonic() - self._changed
        )

    # Called by the bus (`Follower`).

    def began(self, recreated: bool, /) -> None:
        """Prepare for every report to be repeated."""
        self._read_deferred()  # of the reading before: a later one may not repeat them
        self._stream.began(recreated)
        self._reading += 1
        self._set_current(False)

    def received(self, message: StoredMessage) -> None:
        """Update one report, unless the message is known already or not a report."""
        if self.rates.admits(message.subject):
            self._deferred.pop(message.subject, None)
            self._read(message)
            return
        self._deferred[message.subject] = message
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW, self._read_deferred)

    def _read_deferred(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deferred, self._deferred = self._deferred, {}
        for message in deferred.values():
            self._read(message)

    def _read(self, message: StoredMessage) -> None:
        stored = self._by_subject.get(message.subject)
        if stored is not None:
            stored.reading = self._reading
            if stored.data == message.data:
                return
        parts = stored.parts if stored is not None else _parse(message.subject, self._cluster)
        if parts is None or (parts.component, parts.kind, parts.asker) not in _KNOWN:
            self.ignored[IgnoredReport.UNKNOWN] += 1
            return
        if len(message.data) > subjects.STATE.max_message:
            self.ignored[IgnoredReport.TOO_LARGE] += 1
            return
        try:
            report = decode(Report, message.data)
        except MalformedMessage:
            is_of_this_version = version_of(message.data) == MAJOR
            self.ignored[
                IgnoredReport.UNREADABLE if is_of_this_version else IgnoredReport.OTHER_VERSION
            ] += 1
            if stored is not None and not is_of_this_version:
                self._drop(stored)  # a report of another version replaced it
            return
        if (report.node, report.component, report.kind) != (
            parts.node,
            parts.component,
            parts.kind,
        ):
            self.ignored[IgnoredReport.FOREIGN] += 1
            return
        self._update(stored, parts, message, report)

    def caught_up(self) -> None:
        """Drop the reports that the stream did not repeat."""
        self._read_deferred()
        if self._stream.is_repeated:
            self._drop_unrepeated()
        self._set_current(True)
        self._synced.set()

    def lost(self) -> None:
        """Treat the cache as stale until the stream has caught up again."""
        self._set_current(False)

    def _update(
        self, stored: _Stored | None, parts: State, message: StoredMessage, report: Report
    ) -> None:
        before = None
        if stored is None:
            stored = _Stored(message.subject, parts, message.data, report, self._reading)
            self._by_subject[message.subject] = stored
            key = (parts.component, parts.kind, parts.asker)
            self._by_node.setdefault(parts.node, {})[key] = stored
        else:
            before = stored.report
            stored.data, stored.report = message.data, report
        for watcher in tuple(self._watchers):
            watcher(parts, before, report)

    def _drop_unrepeated(self) -> None:
        for stored in tuple(self._by_subject.values()):
            if stored.reading != self._reading:
                self._drop(stored)

    def _drop(self, stored: _Stored) -> None:
        parts = stored.parts
        del self._by_subject[stored.subject]
        reports = self._by_node[parts.node]
        del reports[parts.component, parts.kind, parts.asker]
        if not reports:
            del self._by_node[parts.node]
        for watcher in tuple(self._watchers):
            watcher(parts, stored.report, None)

    def _set_current(self, current: bool) -> None:
        if current == self._is_current:
            return
        now = self._clock.monotonic()
        if current:
            self._stale_before += now - self._changed
        self._is_current = current
        self._changed = now


def _parse(subject: str, cluster: str) -> State | None:
    # `subjects.parse` checks each token with a regular expression, which takes ten times as long as
    # all of `received`. The filter admits only this plane and cluster; the envelope must agree.
    tokens = subject.split(".")[4:]
    if len(tokens) not in (3, 4):
        return None
    node = subjects.NO_NODE if tokens[0] == "-" else tokens[0].replace("_", ".")
    asker = tokens[3] if len(tokens) == 4 else ""
    return State(cluster=cluster, node=node, component=tokens[1], kind=tokens[2], asker=asker)
