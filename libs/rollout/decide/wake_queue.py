"""When to step nodes again though nothing about them changed.

A heap of times; a replaced time stays in it and is skipped when it comes up.
"""

from heapq import heappop, heappush
from typing import Final

from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.views.node import NodeView

_NEVER: Final = float("inf")


class WakeQueue:
    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def put(self, name: str, at: float | None) -> None:
        """Set the next time of the node; None: no timer."""
        if self._next.get(name) == at:
            return
        if at is None:
            del self._next[name]
            return
        self._next[name] = at
        heappush(self._heap, (at, name))

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the nodes whose time has come."""
        names: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._next.get(name) == at:
                del self._next[name]
                names.append(name)
        return names

    def next_at(self) -> float | None:
        while self._heap and self._next.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None


def next_wake(node: NodeView, outcome: NodeOutcome, due: float | None, now: float) -> float | None:
    """Return when the node has to be stepped again though nothing about it changes."""
    earliest = _NEVER if due is None or due <= now else due
    if outcome is None:
        return earliest if earliest < _NEVER else None
    for component in node.components.values():
        if now < component.silent_at < earliest:
            earliest = component.silent_at
    for at in _own_times(outcome):
        if at is not None and now < at < earliest:
            earliest = at
    return earliest if earliest < _NEVER else None


def _own_times(outcome: NodeOutcome) -> tuple[float | None, ...]:
    if isinstance(outcome, Wait):
        return (outcome.until,)
    if isinstance(outcome, Step):
        return (outcome.wake_at, outcome.wait.until if outcome.wait is not None else None)
    return ()
