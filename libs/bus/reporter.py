"""Store a component's reports on the `state` plane, retrying until each is acknowledged.

A newer report of a kind replaces an unsent one; only results queue, because none may be lost.
Acknowledged reports are stored again from time to time, because STATE may have lost them.
"""

import asyncio
import logging
from collections import deque

import msgspec

from libs.bus.port import Bus, BusError, BusUnavailable
from libs.contracts.message import encode
from libs.contracts.reports import Report, Result, StateBody, StateKind
from libs.contracts.subjects import STATE, State
from libs.runtime.clock import Backoff, jittered
from libs.runtime.env import Env
from libs.runtime.tasks import wait_up_to

log = logging.getLogger("sluice.bus")

REPEAT = 600.0
"""Seconds after which every report is stored again, before jitter."""

RECONNECT_SPREAD = 2.0
"""Seconds over which a fleet spreads its work after a reconnect."""


class _PendingReport(msgspec.Struct):
    data: bytes
    id: str
    tried: bool = False
    """The report may be stored, so it must be repeated, with its id, before any newer report."""


class _ReportQueue(msgspec.Struct):
    """The reports of one subject that wait to be stored, oldest first, and the last one stored."""

    subject: str
    kind: StateKind
    waiting: deque[_PendingReport]
    stored: bytes = b""


class Reporter:
    """Reports the state of one component in one boot of one node."""

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
        self._queues: dict[str, _ReportQueue] = {}
        self._id_prefix = f"{bus.identity}/{env.random.getrandbits(64):016x}"
        self._count = 0
        self._changed = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self.last_error = ""
        """Why the last attempt to store failed; empty if it succeeded."""

    def report(self, body: StateBody, *, asker: str = "") -> None:
        """Store a report and keep repeating it; `asker` sent the check that it answers."""
        identity = self._bus.identity
        report = Report.of(
            body,
            node=identity.node,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            component=identity.writer,
            # A repeated result must have the same bytes.
            at=body.finished if isinstance(body, Result) else self._clock.now(),
        )
        subject = State(
            cluster=identity.cluster,
            node=identity.node,
            component=identity.writer,
            kind=report.kind,
            asker=asker,
        )
        queue = self._queues.setdefault(
            str(subject), _ReportQueue(str(subject), report.kind, deque())
        )
        data = encode(report)
        if report.kind is not StateKind.RESULT:
            while queue.waiting and not queue.waiting[-1].tried:
                queue.waiting.pop()
        elif queue.waiting and queue.waiting[-1].data == data:
            return
        self._enqueue(queue, data)
        self._changed.set()

    async def run(self) -> None:
        """Store reports until cancelled; wait while the bus is unavailable."""
        unwatch = self._bus.link.watch(self._link_changed)
        backoff = Backoff(self._random)
        repeat_at = self._next_repeat()
        try:
            while True:
                self._changed.clear()
                if not await self._store_all():
                    await wait_up_to(backoff.next(), self._reconnected)
                else:
                    backoff.reset()
                    await wait_up_to(repeat_at - self._clock.monotonic(), self._changed)
                reconnected = self._reconnected.is_set()
                if reconnected:
                    await self._clock.sleep(self._random.uniform(0.0, RECONNECT_SPREAD))
                    self._reconnected.clear()
                if reconnected or self._clock.monotonic() >= repeat_at:
                    self._repeat()
                    repeat_at = self._next_repeat()
        finally:
            unwatch()

    async def flush(self, kind: StateKind | None = None) -> None:
        """Return once all reports, or all of one kind, are stored."""
        while any(queue.waiting for queue in self._queues.values() if kind in (None, queue.kind)):
            await self._acknowledged.wait()

    async def _store_all(self) -> bool:
        """Return whether every report is stored."""
        self.last_error = ""
        for queue in tuple(self._queues.values()):
            try:
                await self._store(queue)
            except BusUnavailable as error:
                self.last_error = str(error)
                break  # the other subjects would fail too
            except BusError as error:
                self.last_error = str(error)
        return not self.last_error

    async def _store(self, queue: _ReportQueue) -> None:
        while queue.waiting:
            report = queue.waiting[0]
            report.tried = True
            if len(report.data) > STATE.max_message:
                log.error("%s: a report of %d bytes is too long", queue.subject, len(report.data))
                queue.waiting.popleft()
                continue
            await self._bus.store(STATE, queue.subject, report.data, id=report.id)
            queue.waiting.popleft()
            queue.stored = report.data
            self._acknowledged.set()
            self._acknowledged.clear()

    def _enqueue(self, queue: _ReportQueue, data: bytes) -> None:
        self._count += 1
        queue.waiting.append(_PendingReport(data, f"{self._id_prefix}/{self._count}"))

    def _repeat(self) -> None:
        for queue in self._queues.values():
            if not queue.waiting and queue.stored:
                self._enqueue(queue, queue.stored)

    def _next_repeat(self) -> float:
        return self._clock.monotonic() + jittered(REPEAT, self._random)

    def _link_changed(self, up: bool) -> None:
        if up:
            self._reconnected.set()
            self._changed.set()
