"""What will happen on a stage, and when: a heap in virtual time.

What is to happen is a function and plain values, so that a copy of the agenda means the same for a
copy of the stage. Must not know what any of it does.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

Callback = Callable[..., None]
"""Is called with the state of the stage, then with its values."""


class Timer(NamedTuple):
    """One thing that will happen. Of two at one time the earlier entry comes first."""

    at: float
    entry: int
    callback: Callback
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        """As a person reads it."""
        said = ", ".join(str(value) for value in self.values)
        return f"{self.callback.__name__.strip('_')}({said})"


class TimerQueue:
    """What is still to happen."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._entries = 0

    def add(self, at: float, callback: Callback, *values: Any) -> None:
        """Nothing is ever taken off the agenda: what is void by then finds that out itself."""
        self._entries += 1
        heappush(self._heap, Timer(at, self._entries, callback, values))

    @property
    def next_at(self) -> float | None:
        """When the next thing happens."""
        return self._heap[0].at if self._heap else None

    def pop(self) -> Timer:
        """The next thing; it is up to the caller to have it happen."""
        return heappop(self._heap)

    def pending(self) -> tuple[Timer, ...]:
        """All of it, in order."""
        return tuple(sorted(self._heap, key=lambda due: due[:2]))

    def remove(self, due: Timer) -> None:
        """This one is taken out of its turn."""
        self._heap.remove(due)
        heapify(self._heap)

    def copy(self) -> "TimerQueue":
        """An agenda of its own."""
        made = TimerQueue()
        made._heap = self._heap.copy()
        made._entries = self._entries
        return made
