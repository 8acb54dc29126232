"""Queues of candidates: one queue for all candidates of a pool that the same limits apply to.

A slot that is taken or returned thus changes the heads of a few queues, never every node.
"""

from typing import NamedTuple

from libs.contracts.node import Operation, WaitCode
from libs.rollout.allocate.preflight_status import PreflightPhase, PreflightStatus, preflight_status
from libs.rollout.budget import NON_DISRUPTIVE
from libs.rollout.decision import Candidate, Wait
from libs.rollout.order import RankedNodes, SortedList, rank
from libs.rollout.reconcile.block_reasons import BlockReason
from libs.rollout.reconcile.contribution import NodeContribution
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.node import NodeView

_VALIDATE, _REMOVE = Operation.VALIDATE, Operation.REMOVE
_BLOCKED = PreflightPhase.BLOCKED


class QueueKey(NamedTuple):
    """Which limits apply to a candidate."""

    validates_only: bool
    """Only validated: nothing but a pause blocks it."""
    is_recovery: bool
    """It counts for no target: it failed on an earlier one, unless it is only validated."""
    costs_budget: bool
    """It is available, and its start would make it unavailable."""
    already_failed: bool
    """It failed on this target before and is already counted there."""
    target: str


def queue_key(candidate: Candidate, contribution: NodeContribution, tally: PoolTally) -> QueueKey:
    operation = candidate.operation
    target = "" if operation is _REMOVE else candidate.target
    costs_budget = not contribution.unavailable and operation not in NON_DISRUPTIVE
    failed = tally.has_failed(contribution.uid, target)
    return QueueKey(operation is _VALIDATE, candidate.outside, costs_budget, failed, target)


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
            wait = self._waits[since] = Wait(
                code=reason.code,
                detail=reason.detail,
                since=since,
                who=reason.who,
            )
        return wait


class CandidateQueues:
    """All candidates of one pool."""

    def __init__(self) -> None:
        self.queues: dict[QueueKey, CandidateQueue] = {}
        self.candidates: dict[str, Candidate] = {}
        self.blocked: dict[str, PreflightStatus] = {}
        """By name: candidates blocked by their preflight check, in no queue."""
        self.rechecking: set[str] = set()
        """Blocked candidates whose check is being repeated."""
        self.due: SortedList[tuple[float, str]] = SortedList()
        """Blocked candidates whose check may be repeated, the longest due first."""
        self._due_since: dict[str, float] = {}
        self._queue_of: dict[str, CandidateQueue] = {}

    def put(
        self,
        node: NodeView,
        candidate: Candidate,
        contribution: NodeContribution,
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
        key = queue_key(candidate, contribution, tally)
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
