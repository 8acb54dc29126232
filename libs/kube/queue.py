"""The work queue of a controller. It holds keys only, no changes.

- A key is handed out to one worker at a time; if it is added meanwhile, it is queued again.
- More urgent keys go first, and first in first out. A waiting key that is added more urgently
  moves to the end of that line. Every sixteenth key handed out is, among the heads of the lines,
  the key that has waited longest, so that no key starves.
- Delayed keys are kept apart: of two delays of one key the earlier counts, with the higher urgency
  of both. Adding the key does not cancel its delay, which may have another reason.
- `close` drops all waiting keys; keys already handed out may be finished.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Generic, TypeVar

import msgspec

from libs.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

RETRY_FIRST = 0.005
"""Seconds before the first retry of a key; each further one waits twice as long."""
RETRY_CAP = 300.0
"""The longest of these waits: what a person repairs is noticed within five minutes."""
RETRY_RATE = 50.0
"""Retries per second of all keys together, once the burst is used up."""
RETRY_BURST = 500.0
"""Retries at once after a quiet time. Without a bound, an outage of the API server would end with a
retry of every key of the fleet.
"""
FAIR_TURN = 16
"""At each of these turns the longest waiting key is taken, whatever its urgency; a storm of changes
would otherwise keep keys of the first list waiting for ever.
"""

_MIN_HEAP = 64
"""Entries below which no void ones are sorted out: the work would be more than what it saves."""


class Urgency(IntEnum):
    LIVE = 0
    """The object changed."""
    INITIAL = 1
    """The object was in the first list."""
    RESYNC = 2
    """Periodic, in case a change was missed."""


_QueuedKey = tuple[K, Urgency, float]
"""A waiting key, its urgency, and the time since when it waits."""


class QueueClosed(Exception):
    """Raised by `get` after `close`."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    waiting: int
    delayed: int
    working: int
    oldest: float
    """Seconds that the oldest waiting key has waited."""
    added: int
    """Keys added since the start."""
    retried: int


class WorkQueue(Generic[K]):
    """The keys of one controller, on one event loop."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lines: tuple[deque[_QueuedKey[K]], ...] = tuple(deque() for _ in Urgency)
        # An entry of a line is valid only while it is the key's entry here.
        self._waiting: dict[K, _QueuedKey[K]] = {}
        self._working: dict[K, Urgency] = {}
        self._again: dict[K, Urgency] = {}
        self._delays = _Delays[K](clock=clock, on_due=self.add)
        self._failures: dict[K, int] = {}
        self._retry_bucket = _RetryBucket(clock)
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._turn = 0
        self._added = 0
        self._retried = 0

    def add(self, key: K, urgency: Urgency = Urgency.LIVE) -> None:
        """Queue the key at once; raise the urgency of a waiting one."""
        entry = self._waiting.get(key)
        if entry is not None:
            if urgency < entry[1]:
                self._put(key, urgency, since=entry[2])
        elif key in self._working:
            self._again[key] = min(urgency, self._again.get(key, urgency))
        elif not self._closed:
            self._added += 1
            self._put(key, urgency, since=self._clock.monotonic())
            self._wake()

    def add_after(self, key: K, seconds: float, urgency: Urgency = Urgency.LIVE) -> None:
        if self._closed:
            return
        if seconds <= 0:
            self.add(key, urgency)
        else:
            self._delays.add(key, urgency, due=self._clock.monotonic() + seconds)

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Add the key after its back-off, with the urgency it was handed out with; return the
        seconds.

        The back-off grows until `forget`, and further while all keys together fail often.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retried += 1
        own = min(RETRY_CAP, RETRY_FIRST * 2.0 ** min(failures, 32))
        seconds = max(own, self._retry_bucket.take(), at_least)
        self.add_after(key, seconds, self._working.get(key, Urgency.LIVE))
        return seconds

    def forget(self, key: K) -> None:
        """Reset the back-off of the key."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key, which must be returned with `done`; raise `QueueClosed` after
        `close`.
        """
        while not self._waiting:
            if self._closed:
                raise QueueClosed
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                if getter.done() and not getter.cancelled():
                    self._wake()  # woken and cancelled at once: wake the next getter
                raise
        return self._take()

    def done(self, key: K) -> None:
        """Return a key; if it was added meanwhile, queue it again."""
        del self._working[key]
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, again)

    def close(self) -> None:
        """Drop all waiting keys and end every `get`."""
        self._closed = True
        self._waiting.clear()
        self._again.clear()
        for line in self._lines:
            line.clear()
        self._delays.close()
        while self._getters:
            self._wake()

    def stats(self) -> QueueStats:
        now = self._clock.monotonic()
        return QueueStats(
            waiting=len(self._waiting),
            delayed=len(self._delays),
            working=len(self._working),
            oldest=now - min((entry[2] for entry in self._waiting.values()), default=now),
            added=self._added,
            retried=self._retried,
        )

    def _put(self, key: K, urgency: Urgency, *, since: float) -> None:
        entry = (key, urgency, since)
        self._waiting[key] = entry
        self._lines[urgency].append(entry)

    def _take(self) -> K:
        self._turn += 1
        lines = self._lines if self._turn < FAIR_TURN else self._longest_waiting_first()
        for line in lines:
            while line:
                entry = line.popleft()
                key = entry[0]
                if self._waiting.get(key) is entry:
                    del self._waiting[key]
                    self._working[key] = entry[1]
                    return key
        raise LookupError("a waiting key is in no line")

    def _longest_waiting_first(self) -> list[deque[_QueuedKey[K]]]:
        self._turn = 0
        for line in self._lines:
            while line and self._waiting.get(line[0][0]) is not line[0]:
                line.popleft()
        return sorted(filter(None, self._lines), key=_head_since)

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


def _head_since(line: deque[_QueuedKey[K]]) -> float:
    return line[0][2]


class _Delays(Generic[K]):
    """Delayed keys: one heap, and one task that sleeps until the earliest is due."""

    def __init__(self, *, clock: Clock, on_due: Callable[[K, Urgency], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._due: dict[K, tuple[float, Urgency]] = {}
        # May hold outdated entries, which are skipped when they come up.
        self._heap: list[tuple[float, int, K]] = []
        self._count = itertools.count()
        self._sleeper: asyncio.Task[None] | None = None
        self._wakes_at = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, urgency: Urgency, *, due: float) -> None:
        known = self._due.get(key)
        if known is not None:
            urgency = min(urgency, known[1])
            if known[0] <= due:
                self._due[key] = (known[0], urgency)
                return
        self._due[key] = (due, urgency)
        heapq.heappush(self._heap, (due, next(self._count), key))
        if len(self._heap) > 2 * len(self._due) + _MIN_HEAP:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapq.heapify(self._heap)
        self._schedule()

    def close(self) -> None:
        self._due.clear()
        self._heap.clear()
        self._cancel_sleeper()

    def _schedule(self) -> None:
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._sleeper is not None and self._wakes_at <= due:
            return
        self._cancel_sleeper()
        self._wakes_at = due
        self._sleeper = asyncio.create_task(self._sleep_until(due), name="queue/delays")

    def _cancel_sleeper(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    async def _sleep_until(self, due: float) -> None:
        await self._clock.sleep(due - self._clock.monotonic())
        self._sleeper = None
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_valid(entry):
                key = entry[2]
                self._on_due(key, self._due.pop(key)[1])
        self._schedule()

    def _is_valid(self, entry: tuple[float, int, K]) -> bool:
        due, _, key = entry
        known = self._due.get(key)
        return known is not None and known[0] == due


class _RetryBucket:
    """A token bucket that may be overdrawn at the price of a delay."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = RETRY_BURST
        self._refilled_at = clock.monotonic()

    def take(self) -> float:
        """Take a token and return the delay in seconds."""
        now = self._clock.monotonic()
        self._tokens = min(RETRY_BURST, self._tokens + (now - self._refilled_at) * RETRY_RATE) - 1.0
        self._refilled_at = now
        return max(0.0, -self._tokens / RETRY_RATE)
