"""The incumbent's controller in time: what wakes the controller, and how long a pass takes.

One worker and one key. A change of a node's state label wakes the controller, and so does a tick
every two minutes; driver pods, validators, jobs and readiness do not. A pass that ends in an error
is tried again after a back-off. This module is independent of the rules.
"""

from collections.abc import Callable, Sequence

from bench.comparison import ComparedFleet
from bench.recreation.actions import TimedActions
from bench.recreation.machine import EventQueue, RequestCounts
from bench.recreation.nodes import IncumbentNode, PassAborted, check_complete, group_by_state
from bench.recreation.passes import apply

TICK = 120.0
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 3.0


class IncumbentController:
    def __init__(
        self,
        nodes: Sequence[IncumbentNode],
        *,
        fleet: ComparedFleet,
        actions: Callable[[Callable[[], None]], TimedActions],
        events: EventQueue,
        requests: RequestCounts,
    ) -> None:
        self.actions = actions(self.wake)
        self._nodes = nodes
        self._fleet = fleet
        self._events = events
        self._requests = requests
        self._busy = False
        self._woken = False
        self._failures = 0
        self._ticks = 0
        self._retries = 0
        """Whether a pass is in the event queue."""
        self._still = False
        self._written = 0
        """At the last pass: whether the event queue was empty, and the number of writes."""

    def wake(self) -> None:
        """Wake the controller because a watched object changed."""
        self._woken = True
        if not self._busy:
            self._begin()

    @property
    def is_over(self) -> bool:
        """Whether only idle passes are left."""
        if self._busy or not (self._still and self._alone):
            return False
        if self._written != self._requests.writes:
            return False
        return not any(map(self.actions.waits_for_time, self._nodes))

    @property
    def _alone(self) -> bool:
        return len(self._events) == self._ticks + self._retries

    def _begin(self) -> None:
        """List everything, then read each node unless a list lacks something."""
        self._busy, self._woken = True, False
        self._still = self._alone
        self._written = self._requests.writes
        self._requests.reads += 2
        listed = self._events.now + 2 * self._fleet.request
        try:
            check_complete(self._nodes)
        except PassAborted:
            self._events.at(listed, self._failed)
        else:
            self._requests.reads += len(self._nodes)
            self._events.at(listed + len(self._nodes) * self._fleet.request, self._apply)

    def _apply(self) -> None:
        self.actions.now = self._events.now
        try:
            apply(group_by_state(self._nodes), self._fleet, self.actions)
        except PassAborted:
            self._events.at(self.actions.now, self._failed)
        else:
            self._events.at(self.actions.now, self._finished)

    def _finished(self) -> None:
        """Schedule the earlier of two ticks."""
        self._failures = 0
        if not self._ticks:
            self._ticks = 1
            self._events.at(self._events.now + TICK, self._ticked)
        self._end()

    def _failed(self) -> None:
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._retries += 1
        self._events.at(self._events.now + backoff, self._retried)
        self._end()

    def _end(self) -> None:
        wrote, self.actions.wrote = self.actions.wrote, False
        self._busy = False
        if wrote or self._woken:
            self._begin()

    def _ticked(self) -> None:
        self._ticks -= 1
        self.wake()

    def _retried(self) -> None:
        self._retries -= 1
        self.wake()
