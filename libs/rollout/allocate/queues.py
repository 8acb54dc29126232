"""Candidates of a pool: those whom the same limits hold stand in one line, and wait for one reason.

So a place that is taken or given back touches the heads of a few lines, never every node. Must not
know the limits.
"""

from typing import NamedTuple

from libs.contracts.node import Operation
from libs.contracts.waits import WaitCode
from libs.rollout.allocate.preflight import Inquiry, Stage, inquiry
from libs.rollout.budget import FREE
from libs.rollout.decision import Candidate, Wait
from libs.rollout.order import Line, Sorted, rank
from libs.rollout.reconcile.bearing import Bearing
from libs.rollout.reconcile.stops import Stop
from libs.rollout.reconcile.tally import Tally
from libs.rollout.views.node import NodeView

_VALIDATE, _REMOVE = Operation.VALIDATE, Operation.REMOVE
_BLOCKED = Stage.BLOCKED


class Lot(NamedTuple):
    """Which limits hold a candidate."""

    validates: bool
    """It is merely validated: nothing but a pause does."""
    heals: bool
    """It counts for no target: unless it is merely validated, it failed on an earlier one."""
    costs: bool
    """It is available, and its start would make it unavailable."""
    again: bool
    """It failed on this target before, so that it is counted there already."""
    target: str


def lot(candidate: Candidate, bearing: Bearing, tally: Tally) -> Lot:
    """Which limits hold it."""
    operation = candidate.operation
    target = "" if operation is _REMOVE else candidate.target
    costs = not bearing.unavailable and operation not in FREE
    again = tally.has_failed(bearing.uid, target)
    return Lot(operation is _VALIDATE, candidate.outside, costs, again, target)


class Queue:
    """Candidates whom the same limits hold."""

    def __init__(self, lot: Lot) -> None:
        self.lot = lot
        self.line = Line()
        self.shut: Stop | None = None
        self._waits: dict[float, Wait] = {}

    def close(self, reason: Stop | None) -> bool:
        """Who stands here waits for this; whether it has another code than before."""
        had, self.shut = self.shut, reason
        if had == reason:
            return False
        self._waits = {}
        return had is None or reason is None or had.code is not reason.code

    def wait(self, since: float) -> Wait:
        """What one waits for who stands here; shared by all who came at the same time."""
        made = self._waits.get(since)
        if made is None:
            reason = self.shut
            if reason is None:
                raise LookupError(f"nobody has to wait in the line {self.lot}")
            made = self._waits[since] = Wait(
                code=reason.code,
                detail=reason.detail,
                since=since,
                who=reason.who,
            )
        return made


class Queues:
    """All candidates of one pool."""

    def __init__(self) -> None:
        self.queues: dict[Lot, Queue] = {}
        self.candidates: dict[str, Candidate] = {}
        self.blocked: dict[str, Inquiry] = {}
        """By name: those whom their preflight keeps from standing in a line."""
        self.asking: set[str] = set()
        """Of these, who is being asked again."""
        self.due: Sorted[tuple[float, str]] = Sorted()
        """Of these, who may be asked again, the longest known first."""
        self._due_since: dict[str, float] = {}
        self._queue_of: dict[str, Queue] = {}

    def put(
        self,
        node: NodeView,
        candidate: Candidate,
        bearing: Bearing,
        tally: Tally,
        *,
        before: WaitCode | None,
        now: float,
    ) -> tuple[Inquiry, Queue | None]:
        """It could start, as far as it alone is concerned: what is known, and its line."""
        name = node.name
        self._unblock(name)
        self.candidates[name] = candidate
        asked = inquiry(node, candidate, before, now)
        if asked.stage is _BLOCKED:
            self._leave(name)
            self._block(node, asked, now)
            return asked, None
        key = lot(candidate, bearing, tally)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key)
        if self._queue_of.get(name) is not queue:
            self._leave(name)
            self._queue_of[name] = queue
        queue.line.put(rank(node, candidate))
        return asked, queue

    def drop(self, name: str) -> None:
        """It could not start now."""
        if name in self.candidates:
            del self.candidates[name]
            self._unblock(name)
            self._leave(name)

    def _leave(self, name: str) -> None:
        queue = self._queue_of.pop(name, None)
        if queue is not None:
            queue.line.drop(name)
            if not len(queue.line):
                del self.queues[queue.lot]

    def _block(self, node: NodeView, asked: Inquiry, now: float) -> None:
        name = node.name
        self.blocked[name] = asked
        if asked.asking or node.writing:
            self.asking.add(name)
        elif asked.due is not None and asked.due <= now:
            self._due_since[name] = asked.due
            self.due.add((asked.due, name))

    def _unblock(self, name: str) -> None:
        if self.blocked.pop(name, None) is not None:
            self.asking.discard(name)
            since = self._due_since.pop(name, None)
            if since is not None:
                self.due.remove((since, name))
