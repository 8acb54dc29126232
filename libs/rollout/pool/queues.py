"""Queues of candidates in the order of their starts (docs/states.md#d-4), kept sorted.

One queue holds all candidates of a pool that the same limits apply to. A slot that is taken or
returned thus changes the heads of a few queues, never every node.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from libs.contracts.node import Operation
from libs.contracts.numbers import parse_version
from libs.contracts.waits import WaitCode
from libs.rollout.cordons import NON_DISRUPTIVE
from libs.rollout.decision import Candidate, Wait
from libs.rollout.pool.contribution import NodeContribution
from libs.rollout.pool.tally import PoolTally
from libs.rollout.preflight import PreflightPhase, PreflightStatus, preflight_status
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import BlockReason

_VALIDATE, _REMOVE = Operation.VALIDATE, Operation.REMOVE

_BLOCKED = PreflightPhase.BLOCKED


class Rank(NamedTuple):
    """Sort key of a candidate, smallest first. No two nodes have the same."""

    upgrade_last: bool
    """The node runs NATS, our cluster roles or the control plane."""
    backed_off: bool
    """The node was released with a back-off."""
    healthy: bool
    """The node did not fail on an earlier target."""
    busy: bool
    gpu_pods: int
    driver: tuple[int, ...]
    """Version of its driver: the oldest first."""
    name: str


def rank(node: NodeView, candidate: Candidate) -> Rank:
    record, usage, loaded = node.current_record, node.usage, node.loaded
    pods = 0 if usage is None else len(usage.pods)
    return Rank(
        node.upgrade_last,
        record is not None and record.back_off_seconds > 0,
        not candidate.outside,
        usage is None or pods > 0 or usage.host_processes > 0,
        pods,
        () if loaded is None else parse_version(loaded.version),
        node.name,
    )


_T = TypeVar("_T", Rank, tuple[float, str])


class SortedList(Generic[_T]):
    """A sorted list. Added items are merged when the list is read."""

    def __init__(self) -> None:
        self._items: list[_T] = []
        self._added: list[_T] = []

    def __iter__(self) -> Iterator[_T]:
        self._merge()
        return iter(self._items)

    def add(self, item: _T) -> None:
        self._added.append(item)

    def remove(self, item: _T) -> None:
        self._merge()
        del self._items[bisect_left(self._items, item)]

    def _merge(self) -> None:
        if not self._items:
            self._items = sorted(self._added)
        else:
            for item in self._added:
                insort(self._items, item)
        self._added = []


class RankedNodes:
    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        self._sorted: SortedList[Rank] = SortedList()

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._sorted)

    def names(self) -> list[str]:
        return list(self._ranks)

    def put(self, rank: Rank) -> None:
        previous = self._ranks.get(rank.name)
        if previous == rank:
            return
        if previous is not None:
            self._sorted.remove(previous)
        self._ranks[rank.name] = rank
        self._sorted.add(rank)

    def drop(self, name: str) -> None:
        self._sorted.remove(self._ranks.pop(name))


class QueueKey(NamedTuple):
    """The limits that apply to a candidate."""

    validates_only: bool
    """Only validated: nothing but a pause blocks it."""
    by_hand: bool
    """It starts although `autoUpgrade` is off."""
    is_recovery: bool
    """It counts for no target: it failed on an earlier one, unless it is only validated."""
    costs_budget: bool
    """It may be available, and its start would make it unavailable."""
    already_failed: bool
    """It failed on this target before and is already counted there."""
    target: str


def queue_key(candidate: Candidate, contribution: NodeContribution, tally: PoolTally) -> QueueKey:
    operation = candidate.operation
    target = "" if operation is _REMOVE else candidate.target
    costs_budget = contribution.may_be_available and operation not in NON_DISRUPTIVE
    failed = tally.has_failed(contribution.uid, target)
    return QueueKey(
        validates_only=operation is _VALIDATE,
        by_hand=candidate.by_hand,
        is_recovery=candidate.outside,
        costs_budget=costs_budget,
        already_failed=failed,
        target=target,
    )


class CandidateQueue:
    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.ranking = RankedNodes()
        self.blocked_by: BlockReason | None = None
        self._waits: dict[float, Wait] = {}

    def set_block(self, reason: BlockReason | None) -> bool:
        """Set why the queue waits; return whether the code of the reason changed."""
        previous, self.blocked_by = self.blocked_by, reason
        if previous == reason:
            return False
        self._waits = {}
        return previous is None or reason is None or previous.code is not reason.code

    def wait(self, since: float) -> Wait:
        """Return the wait of a candidate in this queue; shared by all with the same `since`."""
        wait = self._waits.get(since)
        if wait is None:
            reason = self.blocked_by
            if reason is None:
                raise LookupError(f"no limit blocks queue {self.key}")
            wait = self._waits[since] = reason.wait(since)
        return wait


class CandidateQueues:
    """All candidates of one pool."""

    def __init__(self) -> None:
        self.queues: dict[QueueKey, CandidateQueue] = {}
        self.candidates: dict[str, Candidate] = {}
        self.blocked: dict[str, PreflightStatus] = {}
        """By name: candidates blocked by their preflight check, in no queue."""
        self.rechecking: set[str] = set()
        """Blocked candidates with a repeated check in progress."""
        self.due: SortedList[tuple[float, str]] = SortedList()
        """Blocked candidates with a check that may be repeated, the longest due first."""
        self._due_since: dict[str, float] = {}
        self._queue_of: dict[str, CandidateQueue] = {}

    def enqueue(
        self,
        node: NodeView,
        candidate: Candidate,
        tally: PoolTally,
        *,
        before: WaitCode | None,
        now: float,
    ) -> tuple[PreflightStatus, CandidateQueue | None]:
        """Put a candidate into its queue, unless its preflight check blocks it."""
        name = node.name
        self._unblock(name)
        self.candidates[name] = candidate
        status = preflight_status(node, candidate, before, now)
        if status.phase is _BLOCKED:
            self._leave(name)
            self._block(node, status, now)
            return status, None
        key = queue_key(candidate, tally.contributions[node.uid], tally)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = CandidateQueue(key)
        if self._queue_of.get(name) is not queue:
            self._leave(name)
            self._queue_of[name] = queue
        queue.ranking.put(rank(node, candidate))
        return status, queue

    def drop(self, name: str) -> None:
        if name in self.candidates:
            del self.candidates[name]
            self._unblock(name)
            self._leave(name)

    def _leave(self, name: str) -> None:
        queue = self._queue_of.pop(name, None)
        if queue is not None:
            queue.ranking.drop(name)
            if not len(queue.ranking):
                del self.queues[queue.key]

    def _block(self, node: NodeView, status: PreflightStatus, now: float) -> None:
        name = node.name
        self.blocked[name] = status
        if status.is_pending or node.write_pending:
            self.rechecking.add(name)
        elif status.due is not None and status.due <= now:
            self._due_since[name] = status.due
            self.due.add((status.due, name))

    def _unblock(self, name: str) -> None:
        if self.blocked.pop(name, None) is not None:
            self.rechecking.discard(name)
            since = self._due_since.pop(name, None)
            if since is not None:
                self.due.remove((since, name))
