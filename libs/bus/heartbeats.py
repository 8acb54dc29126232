"""Send heartbeats, and measure the silence of components by the monitor's own clock.

Time for which the monitor was disconnected does not count as silence.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final, Self, TypeAlias

import msgspec

from libs.bus.port import Bus, BusUnavailable, Closable
from libs.bus.rates import SenderRates
from libs.bus.reporter import RECONNECT_SPREAD
from libs.contracts import subjects
from libs.contracts.commands import Order
from libs.contracts.message import MalformedMessage, decode, encode
from libs.contracts.reports import BEAT_PERIOD, SILENT_AFTER, Beat
from libs.runtime.clock import Clock, jittered
from libs.runtime.env import Env
from libs.runtime.tasks import wait_up_to

MOST_BEATS: Final = 10
"""Heartbeats of a component that are read in a second; it sends one in ten, and a few after it
connected."""


class Heartbeat:
    """Send a component's heartbeat every period and soon after each reconnect."""

    def __init__(self, *, bus: Bus, env: Env, make_beat: Callable[[], Beat]) -> None:
        identity = bus.identity
        self._subject = str(
            subjects.Beat(cluster=identity.cluster, node=identity.node, component=identity.writer)
        )
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._make_beat = make_beat

    async def run(self) -> None:
        """Send heartbeats until cancelled; none are sent while the bus is unavailable."""
        reconnected = asyncio.Event()
        unwatch = self._bus.link.watch(lambda up: reconnected.set() if up else None)
        try:
            while True:
                reconnected.clear()
                with suppress(BusUnavailable):
                    await self._bus.publish(self._subject, encode(self._make_beat()))
                await wait_up_to(jittered(BEAT_PERIOD, self._random), reconnected)
                if reconnected.is_set():
                    await self._clock.sleep(self._random.uniform(0.0, RECONNECT_SPREAD))
        finally:
            unwatch()


class LastBeat(msgspec.Struct, frozen=True, kw_only=True):
    beat: Beat
    age: float
    """Seconds by the monitor's clock, including those for which it was disconnected."""
    clock_ahead: float = 0.0
    """Seconds by which the component's clock is ahead of the monitor's."""

    @property
    def order(self) -> Order:
        """The highest order that the component has seen."""
        return Order(self.beat.token, self.beat.op)


class IgnoredBeat(StrEnum):
    """Why a message was not accepted as a heartbeat."""

    UNREADABLE = "unreadable"
    TOO_LARGE = "too-large"
    FOREIGN = "foreign"
    """The beat names another component than its subject."""


class _Last(msgspec.Struct):
    beat: Beat
    at: float
    listened: float
    clock_ahead: float


BeatWatcher: TypeAlias = Callable[[Beat | None, Beat], None]
"""Called with the last beat of the previous boot, or None, and the first of a new boot.

Must not block.
"""


class HeartbeatMonitor:
    """Receive every heartbeat of a cluster, or of one component, while it is entered."""

    def __init__(
        self, *, bus: Bus, clock: Clock, cluster: str, component: str = subjects.ANY
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._pattern = subjects.cluster_pattern(subjects.Beat, cluster)
        if component != subjects.ANY:
            one = subjects.Beat(cluster=cluster, node=subjects.ANY, component=component)
            self._pattern = str(one)
        self._last: dict[tuple[str, str], _Last] = {}
        self._sources: dict[str, tuple[str, str]] = {}
        """Node and component by subject: parsing a subject for each beat is slow."""
        self._watchers: list[BeatWatcher] = []
        self._expected: dict[tuple[str, str], float] = {}
        """When `is_silent` was first called for a component without any heartbeat."""
        self._subscription: Closable | None = None
        self.ignored: Counter[IgnoredBeat] = Counter()
        self.rates: Final = SenderRates(clock, most=MOST_BEATS)

    async def __aenter__(self) -> Self:
        self._subscription = await self._bus.subscribe(
            self._pattern, self._received, admits=self.rates.admits
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def last(self, node: str, component: str) -> LastBeat | None:
        last = self._last.get((node, component))
        if last is None:
            return None
        age = self._clock.monotonic() - last.at
        return LastBeat(beat=last.beat, age=age, clock_ahead=last.clock_ahead)

    def largest_clock_difference(self) -> float:
        """Return by how much the clock of the component that is furthest off is ahead."""
        return max((last.clock_ahead for last in self._last.values()), key=abs, default=0.0)

    def is_silent(self, node: str, component: str) -> bool:
        """Return whether three periods passed without a beat, not counting outages of the bus.

        For a component without any heartbeat they start at the first call.
        """
        last = self._last.get((node, component))
        now = self._listened()
        since = last.listened if last else self._expected.setdefault((node, component), now)
        return now - since >= SILENT_AFTER

    def flood_rate(self, node: str, component: str) -> float:
        """Return the heartbeats in a second that this component sent lately if too many, or 0."""
        cluster = self._bus.identity.cluster
        return self.rates.rate_of(
            str(subjects.Beat(cluster=cluster, node=node, component=component))
        )

    def on_change(self, watcher: BeatWatcher) -> Callable[[], None]:
        """Call `watcher` at the first beat of each component and of each of its boots."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def forget(self, node: str) -> None:
        """Drop a deleted node."""
        for by_source in (self._last, self._expected):
            for source in [source for source in by_source if source[0] == node]:
                del by_source[source]
        for subject in [s for s, source in self._sources.items() if source[0] == node]:
            del self._sources[subject]

    def _listened(self) -> float:
        """Return the time of a clock that stops while the bus is unavailable."""
        return self._clock.monotonic() - self._bus.link.down_seconds

    def _received(self, subject: str, data: bytes, _reply: str) -> None:
        if len(data) > subjects.Beat.max_message:
            self.ignored[IgnoredBeat.TOO_LARGE] += 1
            return
        try:
            beat = decode(Beat, data)
            source = self._sources.get(subject) or _source(subject)
        except (MalformedMessage, subjects.NotASubject):
            self.ignored[IgnoredBeat.UNREADABLE] += 1
            return
        if source != (beat.node, beat.component):
            self.ignored[IgnoredBeat.FOREIGN] += 1
            return
        self._sources[subject] = source
        last = self._last.get(source)
        ahead = beat.at - self._clock.now() if beat.at else 0.0
        self._last[source] = _Last(beat, self._clock.monotonic(), self._listened(), ahead)
        before = last.beat if last else None
        if before is None or (before.node_uid, before.boot_id) != (beat.node_uid, beat.boot_id):
            for watcher in tuple(self._watchers):
                watcher(before, beat)


def _source(subject: str) -> tuple[str, str]:
    parts = subjects.parse(subject)
    if not isinstance(parts, subjects.Beat):
        raise subjects.NotASubject(f"{subject!r}: not a subject of heartbeats")
    return parts.node, parts.component
