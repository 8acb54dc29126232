"""What a candidate knows of the lease while it waits: its last record, and since when it is so.

A standby that asks every second costs the API server sixty reads a minute for each lease. So
it watches the record, and asks only where a watch proves nothing: before it takes the lease, while
the record is missing, and while the watch does not tell what the last answer told.
"""

import asyncio
from typing import Self

from libs.kube.lease.record import LeaseRecord, expiry_delay
from libs.kube.lease.term import CLOCK_SKEW
from libs.kube.views import Lease
from libs.runtime.env import Env
from libs.runtime.tasks import bounded


class LastSeen:
    """The record as last seen, and since when it is unchanged."""

    def __init__(self, holder: str) -> None:
        self.record: Lease | None = None
        self.since = float("-inf")
        self._holder = holder
        self._revision: str | None = None
        self._seen_at = float("-inf")

    def update(self, record: Lease | None, *, now: float) -> None:
        revision = "" if record is None else record.metadata.resource_version
        # Absence has no revision: without frequent reads a record may have existed in between.
        may_have_changed = record is None and now - self._seen_at > CLOCK_SKEW
        if revision != self._revision or may_have_changed:
            self._revision, self.since = revision, now
        self.record, self._seen_at = record, now

    def seconds_until_free(self, *, now: float) -> float:
        """Return the seconds until the lease may be taken if nothing changes; 0: it is free."""
        record = self.record
        if record is not None and record.spec.holder_identity in (None, "", self._holder):
            return 0.0
        return max(0.0, self.since + expiry_delay(record) - now)


class Standby:
    """A watch of the record while a candidate waits; entered, it can be waited on."""

    def __init__(self, record: LeaseRecord, last_seen: LastSeen, *, env: Env) -> None:
        self._title = record.title
        self._last_seen = last_seen
        self._clock = env.clock
        self._cache = record.cache(env=env)
        self._freed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the watch; a cancellation meanwhile waits, so that it does not outlive the block."""
        self.stop()
        cancelled: asyncio.CancelledError | None = None
        while self._task is not None and not self._task.done():
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def stop(self) -> None:
        """Let the watch end: from now on nothing waits."""
        if self._task is not None:
            self._task.cancel()

    @property
    def agrees(self) -> bool:
        """Whether the watch runs and has the record that was seen last, so that it tells a change.

        A missing record is not watched: it has no revision by which two absences differ.
        """
        record, task = self._last_seen.record, self._task
        if record is None or task is None or task.done() or self._cache.problem:
            return False
        watched = self._cache.get(record.metadata.key)
        return (
            watched is not None
            and watched.metadata.resource_version == record.metadata.resource_version
        )

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until the watch tells that the record is gone or its holder left.

        The watch begins with the first wait, so that a lease that is free costs no watch.
        """
        if self._task is None:
            self._cache.on_change(self._observe)
            self._task = asyncio.create_task(self._cache.run(), name=f"{self._title}/standby")
        self._freed.clear()
        try:
            await bounded(self._freed.wait(), seconds=seconds, clock=self._clock)
        except TimeoutError:
            return

    def _observe(self, _: Lease | None, after: Lease | None) -> None:
        now = self._clock.monotonic()
        self._last_seen.update(after, now=now)
        if after is None or not self._last_seen.seconds_until_free(now=now):
            self._freed.set()
