"""What a component says of itself on the `state` plane, said until the bus has it.

Of each kind the last word counts, so a newer one takes the place of one that was not sent yet; only
results queue, because none may be lost. What was acknowledged is said again now and then: STATE may
have lost it. Whether a report is true, or who believes it, is not known here.
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress

import msgspec

from libs.bus.port import Bus, BusError, BusUnavailable
from libs.contracts.message import encode
from libs.contracts.reports import Report, Result, StateBody, StateKind
from libs.contracts.streams import STATE
from libs.contracts.subjects import State
from libs.runtime.backoff import Backoff, jittered
from libs.runtime.env import Env

log = logging.getLogger("sluice.bus")

REPEAT = 600.0
"""Seconds after which everything is said again, before jitter."""

RECONNECT_SPREAD = 2.0
"""Seconds over which a fleet speaks again when a server comes back to all of it at once."""


class _PendingReport(msgspec.Struct):
    data: bytes
    id: str
    tried: bool = False
    """It may be stored already, or later: it is repeated, with its id, before anything else."""


class _ReportQueue(msgspec.Struct):
    """One subject: what is still to be stored, oldest first, and what was stored last."""

    subject: str
    kind: StateKind
    waiting: deque[_PendingReport]
    said: bytes = b""


class Reporter:
    """The voice of one component in one boot of one node."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        node_uid: str,
        boot_id: str,
    ) -> None:
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._lines: dict[str, _ReportQueue] = {}
        self._voice = f"{bus.identity}/{env.random.getrandbits(64):016x}"
        self._said = 0
        self._bell = asyncio.Event()
        self._there = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self.last_error = ""
        """Why the last try failed, in words; empty if it did not."""

    def report(self, body: StateBody, *, asker: str = "") -> None:
        """Say this from now on; `asker` is who put the check that it answers."""
        me = self._bus.identity
        report = Report.of(
            body,
            node=me.node,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            component=me.writer,
            # A result that is said again is the same bytes again.
            at=body.finished if isinstance(body, Result) else self._clock.now(),
        )
        subject = State(
            cluster=me.cluster, node=me.node, component=me.writer, kind=report.kind, asker=asker
        )
        line = self._lines.setdefault(
            str(subject), _ReportQueue(str(subject), report.kind, deque())
        )
        data = encode(report)
        if report.kind is not StateKind.RESULT:
            while line.waiting and not line.waiting[-1].tried:
                line.waiting.pop()
        elif line.waiting and line.waiting[-1].data == data:
            return
        self._say(line, data)
        self._bell.set()

    async def run(self) -> None:
        """Store what is to be said until cancelled; a bus that is away is waited for."""
        unwatch = self._bus.link.watch(self._link_changed)
        backoff = Backoff(self._random)
        repeat_at = self._next_repeat()
        try:
            while True:
                self._bell.clear()
                if not await self._store_all():
                    await self._wait(self._there, backoff.next())
                else:
                    backoff.reset()
                    await self._wait(self._bell, repeat_at - self._clock.monotonic())
                back = self._there.is_set()
                if back:
                    await self._clock.sleep(self._random.uniform(0.0, RECONNECT_SPREAD))
                    self._there.clear()
                if back or self._clock.monotonic() >= repeat_at:
                    self._repeat()
                    repeat_at = self._next_repeat()
        finally:
            unwatch()

    async def flush(self, kind: StateKind | None = None) -> None:
        """Return once all that was reported, or all of one kind, is stored."""
        while any(line.waiting for line in self._lines.values() if kind in (None, line.kind)):
            await self._acknowledged.wait()

    async def _store_all(self) -> bool:
        """Whether nothing is left to be stored."""
        self.last_error = ""
        for line in tuple(self._lines.values()):
            try:
                await self._store(line)
            except BusUnavailable as error:
                self.last_error = str(error)
                break  # it is away for every subject
            except BusError as error:
                self.last_error = str(error)
        return not self.last_error

    async def _store(self, line: _ReportQueue) -> None:
        while line.waiting:
            saying = line.waiting[0]
            saying.tried = True
            if len(saying.data) > STATE.max_message:
                log.error("%s: %d bytes are too long to be said", line.subject, len(saying.data))
                line.waiting.popleft()
                continue
            await self._bus.store(STATE, line.subject, saying.data, id=saying.id)
            line.waiting.popleft()
            line.said = saying.data
            self._acknowledged.set()
            self._acknowledged.clear()

    def _say(self, line: _ReportQueue, data: bytes) -> None:
        self._said += 1
        line.waiting.append(_PendingReport(data, f"{self._voice}/{self._said}"))

    def _repeat(self) -> None:
        for line in self._lines.values():
            if not line.waiting and line.said:
                self._say(line, line.said)

    def _next_repeat(self) -> float:
        return self._clock.monotonic() + jittered(REPEAT, self._random)

    def _link_changed(self, up: bool) -> None:
        if up:
            self._there.set()
            self._bell.set()

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
