"""The wait of each node, and the time at which each is stepped again."""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from msgspec.structs import replace

from libs.contracts.waits import WaitCode, is_for_people
from libs.rollout.decision import Wait
from libs.rollout.pool.queues import CandidateQueue


class WaitTracker(Mapping[str, Wait]):
    """By node name: every node that waits and has no step.

    A node has its own wait or that of its queue, whose reason thus changes in one place. `since`
    is kept while the code stays the same. A wait changes with its code, and where it is for people
    now and was not before.
    """

    def __init__(self) -> None:
        self.codes: dict[str, WaitCode] = {}
        """The last wait code of each node, also of those with a step."""
        self._is_for_people: dict[str, bool] = {}
        """Likewise, whether that wait was for people when it was returned last."""
        self._since: dict[str, float] = {}
        self._own: dict[str, Wait] = {}
        self._overrides: dict[str, Wait] = {}
        self._queues: dict[str, CandidateQueue] = {}
        self._published: dict[str, None] = {}

    def __getitem__(self, name: str) -> Wait:
        if name not in self._published:
            raise KeyError(name)
        wait = self._overrides.get(name) or self._own.get(name)
        if wait is None:
            return self._queues[name].wait(self._since[name])
        return self._with_since(name, wait)

    def __iter__(self) -> Iterator[str]:
        return iter(self._published)

    def __len__(self) -> int:
        return len(self._published)

    def __contains__(self, name: object) -> bool:
        return name in self._published

    def remember(self, name: str, wait: Wait) -> None:
        """Restore the wait that a node had before this process started."""
        if name not in self.codes:
            self._set(name, wait.code, wait.who, wait.since)

    def put(self, name: str, own: Wait | None, queue: CandidateQueue | None) -> None:
        if own is not None:
            self._own[name] = own
        elif name in self._own:
            del self._own[name]
        if queue is not None:
            self._queues[name] = queue
        elif name in self._queues:
            del self._queues[name]

    def set_overrides(self, overrides: dict[str, Wait]) -> set[str]:
        """Replace the waits that take precedence; return nodes with a possibly changed wait."""
        names = self._overrides.keys() - overrides.keys()
        self._overrides = overrides
        for name, wait in overrides.items():
            if name not in self._published or self._changes(name, wait.code, wait.who):
                names.add(name)
        return names

    def forget(self, name: str) -> None:
        self.clear(name)
        for by_name in (self._own, self._queues):
            by_name.pop(name, None)
        self._published.pop(name, None)

    def update(self, name: str, at: float) -> Wait | None:
        """Publish whether the node waits; return the wait if it changed."""
        reason = self._reason(name)
        if reason is None:
            self._published.pop(name, None)
            return None
        self._published[name] = None
        if not self._changes(name, *reason):
            return None
        self._set(name, *reason, at)
        return self[name]

    def hide(self, name: str) -> None:
        """Hide the wait: a write to the node is not answered yet."""
        self._published.pop(name, None)

    def wait_beside_step(self, name: str, wait: Wait | None, at: float) -> Wait | None:
        """Return the wait that goes with a step, with its right `since`."""
        self._published.pop(name, None)
        if wait is None:
            self.clear(name)
            return None
        self._set(name, wait.code, wait.who, at)
        return self._with_since(name, wait)

    def clear(self, name: str) -> bool:
        """Forget the wait; return whether there was one."""
        self._since.pop(name, None)
        self._is_for_people.pop(name, None)
        return self.codes.pop(name, None) is not None

    def _reason(self, name: str) -> tuple[WaitCode, str] | None:
        """Return the code of the wait, and who can end it; empty for a queue's."""
        wait = self._overrides.get(name) or self._own.get(name)
        if wait is not None:
            return wait.code, wait.who
        queue = self._queues.get(name)
        reason = None if queue is None else queue.blocked_by
        return None if reason is None else (reason.code, "")

    def _changes(self, name: str, code: WaitCode, who: str) -> bool:
        if self.codes.get(name) is not code:
            return True
        return not self._is_for_people[name] and is_for_people(code, who)

    def _set(self, name: str, code: WaitCode, who: str, at: float) -> None:
        if self.codes.get(name) is not code:
            self.codes[name], self._since[name] = code, at
        self._is_for_people[name] = is_for_people(code, who)

    def _with_since(self, name: str, wait: Wait) -> Wait:
        since = self._since[name]
        return wait if wait.since == since else replace(wait, since=since)


class WakeQueue:
    """The times at which nodes are stepped again even if nothing about them changed.

    A heap of times; a replaced time stays in it and is skipped when it comes up.
    """

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
        """Remove and return the nodes that are due."""
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
