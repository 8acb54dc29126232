"""The timers of a stage: a heap in virtual time.

A timer is a function and plain values, so that a copy of the queue is valid for a copy of the
stage.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

Callback = Callable[..., None]
"""Called with the state of the stage and the timer's values."""


class Timer(NamedTuple):
    """A pending call. Of two at the same time, the lower entry comes first."""

    at: float
    entry: int
    callback: Callback
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        values = ", ".join(str(value) for value in self.values)
        return f"{self.callback.__name__.strip('_')}({values})"


class TimerQueue:
    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._entries = 0

    def add(self, at: float, callback: Callback, *values: Any) -> None:
        """Add a timer. Timers are never cancelled; callbacks ignore those that became void."""
        self._entries += 1
        heappush(self._heap, Timer(at, self._entries, callback, values))

    @property
    def next_at(self) -> float | None:
        return self._heap[0].at if self._heap else None

    def pop(self) -> Timer:
        return heappop(self._heap)

    def pending(self) -> tuple[Timer, ...]:
        return tuple(sorted(self._heap, key=lambda due: due[:2]))

    def remove(self, due: Timer) -> None:
        self._heap.remove(due)
        heapify(self._heap)

    def copy(self) -> "TimerQueue":
        copied = TimerQueue()
        copied._heap = self._heap.copy()
        copied._entries = self._entries
        return copied
