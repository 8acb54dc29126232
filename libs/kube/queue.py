"""The work queue of a controller: which key is looked at next. Keys only, never what changed.

- A key is in one pair of hands at a time; what is added while it is worked on comes again after.
- More urgent keys go first, in the order in which they came. A waiting key that is added more
  urgently moves to the end of that line. Every sixteenth key handed out is, of those at the head of
  a line, the one that has waited longest: so nothing waits for ever.
- A delay stands beside the lines: of two for one key the earlier counts, and the more urgent of
  both. Adding the key meanwhile does not end it, for who asked for it may have had another reason.
- `close` drops what waits. Keys are found anew at the next start; what is in hands may be finished.

It must not know what a key means, nor who works on it.
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
RETRY_CAP = 300.0
RETRY_RATE = 50.0
"""Retries a second, all keys together, once the burst is used up."""
RETRY_BURST = 500.0
FAIR_TURN = 16

_FEW = 64


class Urgency(IntEnum):
    """Who goes first."""

    LIVE = 0
    """Something changed."""
    INITIAL = 1
    """It is there, as the first list says."""
    RESYNC = 2
    """Looked at now and then, in case something was missed."""


_QueuedKey = tuple[K, Urgency, float]
"""A key in a line, and since when it could have been handed out."""


class QueueClosed(Exception):
    """The queue hands out nothing any more."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue stands, for whoever measures."""

    waiting: int
    delayed: int
    working: int
    oldest: float
    """Seconds that the key which has waited longest could have been handed out."""
    added: int
    """How often a key was put in line, since the start."""
    retried: int


class WorkQueue(Generic[K]):
    """The keys of one controller, on one event loop."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lines: tuple[deque[_QueuedKey[K]], ...] = tuple(deque() for _ in Urgency)
        # What a line holds counts only while it is the key's place here.
        self._places: dict[K, _QueuedKey[K]] = {}
        self._working: dict[K, Urgency] = {}
        self._again: dict[K, Urgency] = {}
        self._delays = _Delays[K](clock=clock, over=self.add)
        self._tries: dict[K, int] = {}
        self._allowance = _RetryBucket(clock)
        self._takers: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._turn = 0
        self._added = 0
        self._retried = 0

    def add(self, key: K, urgency: Urgency = Urgency.LIVE) -> None:
        """Have it looked at once; what waits already is raised if this is more urgent."""
        place = self._places.get(key)
        if place is not None:
            if urgency < place[1]:
                self._put(key, urgency, since=place[2])
        elif key in self._working:
            self._again[key] = min(urgency, self._again.get(key, urgency))
        elif not self._closed:
            self._added += 1
            self._put(key, urgency, since=self._clock.monotonic())
            self._wake()

    def add_after(self, key: K, seconds: float, urgency: Urgency = Urgency.LIVE) -> None:
        """Add it then."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key, urgency)
        else:
            self._delays.add(key, urgency, due=self._clock.monotonic() + seconds)

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Add it after its back-off, as urgent as it was handed out; gives the seconds.

        Longer each time until `forget`, and longer still while all keys together fail often.
        """
        tries = self._tries.get(key, 0)
        self._tries[key] = tries + 1
        self._retried += 1
        own = min(RETRY_CAP, RETRY_FIRST * 2.0 ** min(tries, 32))
        seconds = max(own, self._allowance.take(), at_least)
        self.add_after(key, seconds, self._working.get(key, Urgency.LIVE))
        return seconds

    def forget(self, key: K) -> None:
        """It went well: its next retry is the first again."""
        self._tries.pop(key, None)

    async def get(self) -> K:
        """The next key, as soon as there is one, to be given back by `done`; or else `Closed`."""
        while not self._places:
            if self._closed:
                raise QueueClosed
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except BaseException:
                if taker.done() and not taker.cancelled():
                    self._wake()  # woken and cancelled at once: the key is for the next one
                raise
        return self._take()

    def done(self, key: K) -> None:
        """It is out of hands; what was added meanwhile is put in line now."""
        del self._working[key]
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, again)

    def close(self) -> None:
        """Drop what waits, and end every `get`."""
        self._closed = True
        self._places.clear()
        self._again.clear()
        for line in self._lines:
            line.clear()
        self._delays.close()
        while self._takers:
            self._wake()

    def stats(self) -> QueueStats:
        """As it is now."""
        now = self._clock.monotonic()
        return QueueStats(
            waiting=len(self._places),
            delayed=len(self._delays),
            working=len(self._working),
            oldest=now - min((place[2] for place in self._places.values()), default=now),
            added=self._added,
            retried=self._retried,
        )

    def _put(self, key: K, urgency: Urgency, *, since: float) -> None:
        place = (key, urgency, since)
        self._places[key] = place
        self._lines[urgency].append(place)

    def _take(self) -> K:
        self._turn += 1
        lines = self._lines if self._turn < FAIR_TURN else self._longest_waiting_first()
        for line in lines:
            while line:
                place = line.popleft()
                key = place[0]
                if self._places.get(key) is place:
                    del self._places[key]
                    self._working[key] = place[1]
                    return key
        raise LookupError("a key has a place, but is in no line")

    def _longest_waiting_first(self) -> list[deque[_QueuedKey[K]]]:
        self._turn = 0
        for line in self._lines:
            while line and self._places.get(line[0][0]) is not line[0]:
                line.popleft()
        return sorted(filter(None, self._lines), key=_head_since)

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return


def _head_since(line: deque[_QueuedKey[K]]) -> float:
    return line[0][2]


class _Delays(Generic[K]):
    """Keys that are due later: one heap, and one task that sleeps until the earliest."""

    def __init__(self, *, clock: Clock, over: Callable[[K, Urgency], None]) -> None:
        self._clock = clock
        self._over = over
        self._due: dict[K, tuple[float, Urgency]] = {}
        # Each key's earliest is in here; what is not that any more is skipped when it comes up.
        self._heap: list[tuple[float, int, K]] = []
        self._count = itertools.count()
        self._sleeper: asyncio.Task[None] | None = None
        self._wakes = 0.0

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
        if len(self._heap) > 2 * len(self._due) + _FEW:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)
        self._sleep()

    def close(self) -> None:
        self._due.clear()
        self._heap.clear()
        self._wake_never()

    def _sleep(self) -> None:
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._sleeper is not None and self._wakes <= due:
            return
        self._wake_never()
        self._wakes = due
        self._sleeper = asyncio.create_task(self._until(due), name="queue/delays")

    def _wake_never(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    async def _until(self, due: float) -> None:
        await self._clock.sleep(due - self._clock.monotonic())
        self._sleeper = None
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._counts(entry):
                key = entry[2]
                self._over(key, self._due.pop(key)[1])
        self._sleep()

    def _counts(self, entry: tuple[float, int, K]) -> bool:
        due, _, key = entry
        known = self._due.get(key)
        return known is not None and known[0] == due


class _RetryBucket:
    """A bucket of tokens that may be overdrawn: who does waits until it would be full enough."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = RETRY_BURST
        self._at = clock.monotonic()

    def take(self) -> float:
        """Seconds to wait for it."""
        now = self._clock.monotonic()
        self._tokens = min(RETRY_BURST, self._tokens + (now - self._at) * RETRY_RATE) - 1.0
        self._at = now
        return max(0.0, -self._tokens / RETRY_RATE)
