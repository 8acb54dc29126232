"""Beats: a component says that it is alive, and a reader measures silence by his own clock.

Only time in which the reader could have heard counts as silence. What follows from silence, and
whether a beat is of the node uid and the boot that is meant, is decided by who asks.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Self, TypeAlias

import msgspec

from libs.bus.port import Bus, BusUnavailable, Closable
from libs.contracts import subjects
from libs.contracts.beats import PERIOD, SILENT_AFTER, Beat
from libs.contracts.commands import Order
from libs.contracts.message import MalformedMessage, decode, encode
from libs.runtime.backoff import jittered
from libs.runtime.clock import Clock
from libs.runtime.env import Env

RECONNECT_SPREAD = 2.0
"""Seconds over which a fleet's beats are spread when a server comes back to all of them at once."""


class Heartbeat:
    """A component's own beat: every period, and soon after the bus is there again."""

    def __init__(self, *, bus: Bus, env: Env, make_beat: Callable[[], Beat]) -> None:
        me = bus.identity
        self._subject = str(subjects.Beat(cluster=me.cluster, node=me.node, component=me.writer))
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._beat = make_beat

    async def run(self) -> None:
        """Beat until cancelled. A bus that is away is waited for."""
        there = asyncio.Event()
        unwatch = self._bus.link.watch(lambda up: there.set() if up else None)
        try:
            while True:
                there.clear()
                with suppress(BusUnavailable):
                    await self._bus.publish(self._subject, encode(self._beat()))
                with suppress(TimeoutError):
                    async with asyncio.timeout(jittered(PERIOD, self._random)):
                        await there.wait()
                if there.is_set():
                    await self._clock.sleep(self._random.uniform(0.0, RECONNECT_SPREAD))
        finally:
            unwatch()


class LastBeat(msgspec.Struct, frozen=True, kw_only=True):
    """A component's last beat."""

    beat: Beat
    age: float
    """Seconds by the reader's clock, with those in which it could hear nothing."""

    @property
    def order(self) -> Order:
        """The highest order that the component has seen."""
        return Order(self.beat.token, self.beat.op)


class IgnoredBeat(StrEnum):
    """Why a message on the beat plane is no beat."""

    UNREADABLE = "unreadable"
    FOREIGN = "foreign"
    """It names somebody else than the subject does."""


class _Last(msgspec.Struct):
    beat: Beat
    at: float
    listened: float


BeatWatcher: TypeAlias = Callable[[Beat | None, Beat], None]
"""Takes the last beat of another boot, or None, and the first of this one. Must not block."""


class HeartbeatMonitor:
    """Hears every beat of a cluster while it is entered."""

    def __init__(self, *, bus: Bus, clock: Clock, cluster: str) -> None:
        self._bus = bus
        self._clock = clock
        self._pattern = subjects.of_cluster(subjects.Beat, cluster)
        self._last: dict[tuple[str, str], _Last] = {}
        self._speakers: dict[str, tuple[str, str]] = {}
        self._watchers: list[BeatWatcher] = []
        self._expected: dict[tuple[str, str], float] = {}
        """Since when somebody who was never heard is asked for."""
        self._hearing: Closable | None = None
        self.ignored: Counter[IgnoredBeat] = Counter()

    async def __aenter__(self) -> Self:
        self._hearing = await self._bus.subscribe(self._pattern, self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._hearing is not None:
            await self._hearing.close()

    def last(self, node: str, component: str) -> LastBeat | None:
        """The last beat, if one was heard since this reader began."""
        last = self._last.get((node, component))
        return LastBeat(beat=last.beat, age=self._clock.monotonic() - last.at) if last else None

    def is_silent(self, node: str, component: str) -> bool:
        """Whether three periods passed without a beat, counting only what could have been heard.

        For one that was never heard they begin when it is first asked for.
        """
        last = self._last.get((node, component))
        now = self._listened()
        since = last.listened if last else self._expected.setdefault((node, component), now)
        return now - since >= SILENT_AFTER

    def on_change(self, watcher: BeatWatcher) -> Callable[[], None]:
        """Call `watcher` when somebody is heard for the first time, or from another boot."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def forget(self, node: str) -> None:
        """Drop what is known of a node that was deleted."""
        for known in (self._last, self._expected):
            for speaker in [speaker for speaker in known if speaker[0] == node]:
                del known[speaker]
        for subject in [s for s, speaker in self._speakers.items() if speaker[0] == node]:
            del self._speakers[subject]

    def _listened(self) -> float:
        """A clock that stands still while the bus is away."""
        return self._clock.monotonic() - self._bus.link.down_seconds

    def _hear(self, subject: str, data: bytes, _reply: str) -> None:
        try:
            beat = decode(Beat, data)
            speaker = self._speakers.get(subject) or _speaker(subject)
        except (MalformedMessage, subjects.NotASubject):
            self.ignored[IgnoredBeat.UNREADABLE] += 1
            return
        if speaker != (beat.node, beat.component):
            self.ignored[IgnoredBeat.FOREIGN] += 1
            return
        self._speakers[subject] = speaker
        last = self._last.get(speaker)
        self._last[speaker] = _Last(beat, self._clock.monotonic(), self._listened())
        before = last.beat if last else None
        if before is None or (before.node_uid, before.boot_id) != (beat.node_uid, beat.boot_id):
            for watcher in tuple(self._watchers):
                watcher(before, beat)


def _speaker(subject: str) -> tuple[str, str]:
    parts = subjects.parse(subject)
    if not isinstance(parts, subjects.Beat):
        raise subjects.NotASubject(f"{subject!r}: not a beat's")
    return parts.node, parts.component
