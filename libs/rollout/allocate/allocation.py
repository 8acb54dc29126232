"""Grant starts to the candidates of a pool, in their order.

A node keeps its turn while its agent has time to answer the preflight check.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from itertools import islice
from operator import itemgetter
from typing import Final

import msgspec

from libs.contracts.node import NodeLease, NodeRecord, Operation, WaitCode
from libs.contracts.rollout import InFlight
from libs.rollout.allocate.headroom import Headroom
from libs.rollout.allocate.preflight_status import PreflightPhase, preflight_status
from libs.rollout.allocate.queues import CandidateQueue, CandidateQueues, QueueKey
from libs.rollout.decision import AskPreflight, Candidate, Step, Wait
from libs.rollout.freshness import Freshness
from libs.rollout.order import Rank
from libs.rollout.reconcile.evaluation import PoolEvaluation
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import NO_ACTION_NEEDED, wait

PREFLIGHTS_AHEAD: Final = 4
"""So many more preflight checks are requested than nodes may start."""
RECHECKS_AT_ONCE: Final = 8
"""So many failed preflight checks are repeated at a time."""


class Allocation(msgspec.Struct, kw_only=True):
    """What is granted in one pool, and the waits that follow."""

    entries: dict[str, InFlight] = {}
    """By uid: nodes that start."""
    names: list[str] = []
    preflight_steps: dict[str, Step] = {}
    """By name: nodes whose agent is asked."""
    waits: dict[str, Wait] = {}
    """By name: waits for another reason than that of the node's queue."""
    changed_queues: list[CandidateQueue] = []
    """Queues whose wait code changed."""
    probes: tuple[str, ...] = ()
    wake_at: float | None = None


def allocate(
    pool: PoolView,
    tally: PoolTally,
    evaluation: PoolEvaluation,
    queues: CandidateQueues,
    *,
    nodes: Mapping[str, NodeView],
    before: Mapping[str, WaitCode],
    fresh: Freshness,
    now: Instant,
) -> Allocation:
    """Grant starts; `before` are the wait codes of the last decision."""
    allocation = Allocation()
    headroom = Headroom(pool, tally, evaluation)
    pass_ = _Pass(pool, queues, allocation, nodes=nodes, before=before, fresh=fresh, now=now)
    pass_.grant_starts(headroom)
    if evaluation.blocked_by is None:
        pass_.repeat_checks()
    return allocation


class _Pass:
    """One pass over the queues of a pool."""

    def __init__(
        self,
        pool: PoolView,
        queues: CandidateQueues,
        allocation: Allocation,
        *,
        nodes: Mapping[str, NodeView],
        before: Mapping[str, WaitCode],
        fresh: Freshness,
        now: Instant,
    ) -> None:
        self._pool = pool
        self._nodes = nodes
        self._queues = queues
        self._before = before
        self._fresh = fresh
        self._now = now
        self._allocation = allocation

    def grant_starts(self, headroom: Headroom) -> None:
        """Grant starts to the smallest ranks of all open queues; then check a few ahead."""
        open_heads: list[tuple[Rank, QueueKey, CandidateQueue, Iterator[Rank]]] = []
        blocked_heads: list[tuple[Rank, CandidateQueue, Iterator[Rank]]] = []
        for key, queue in self._queues.queues.items():
            if headroom.is_open(key):
                ranks = iter(queue.ranking)
                open_heads.append((next(ranks), key, queue, ranks))
        heapify(open_heads)
        while open_heads:
            rank, key, queue, ranks = open_heads[0]
            if not headroom.is_open(key):
                blocked_heads.append((rank, queue, ranks))
                heappop(open_heads)
                continue
            headroom.take(key)
            self._take_turn(rank.name, key)
            following = next(ranks, None)
            if following is None:
                heappop(open_heads)
            else:
                heapreplace(open_heads, (following, key, queue, ranks))
        for key, queue in self._queues.queues.items():
            if queue.set_block(headroom.block_reason(key)):
                self._allocation.changed_queues.append(queue)
        self._check_ahead(blocked_heads)

    def _take_turn(self, name: str, key: QueueKey) -> None:
        """Start the node whose turn it is, or hold its turn while its check is pending."""
        node, candidate = self._nodes[name], self._queues.candidates[name]
        if node.write_pending:
            return
        status = preflight_status(node, candidate, self._before.get(name), self._now.at)
        stale_reason = "" if key.validates_only else self._fresh.stale_reason
        if stale_reason:
            self._allocation.probes = self._fresh.probes
            self._allocation.wake_at = self._fresh.wake_at
        if status.phase is PreflightPhase.NEEDED:
            self._request_check(node, candidate, self._preflight_wait(until=None))
        elif status.phase is PreflightPhase.PENDING:
            self._allocation.waits[name] = self._preflight_wait(until=status.due)
        elif stale_reason:
            self._allocation.waits[name] = wait(WaitCode.STALE, stale_reason, self._now)
        else:
            self._start(node, candidate)

    def _start(self, node: NodeView, candidate: Candidate) -> None:
        self._allocation.names.append(node.name)
        self._allocation.entries[node.uid] = InFlight(
            node=node.name,
            token=next_token(node),
            target=candidate.target,
            since=self._now.at,
            outside=candidate.outside,
            validates=candidate.operation is Operation.VALIDATE,
        )
        detail = f"starting: the start is being recorded in Rollout {self._pool.key}"
        self._allocation.waits[node.name] = wait(
            WaitCode.BUDGET, detail, self._now, who=NO_ACTION_NEEDED
        )

    def _preflight_wait(self, *, until: float | None) -> Wait:
        detail = "waiting for the driver agent to answer the preflight check"
        return wait(WaitCode.PREFLIGHT, detail, self._now, until, who=NO_ACTION_NEEDED)

    def _request_check(self, node: NodeView, candidate: Candidate, wait_meanwhile: Wait) -> None:
        if candidate.check is not None:
            self._allocation.preflight_steps[node.name] = Step(
                actions=(AskPreflight(boot_id=node.boot_id, check=candidate.check),),
                because="run the preflight check before the cordon",
                wait=wait_meanwhile,
            )

    def _check_ahead(
        self, blocked_heads: list[tuple[Rank, CandidateQueue, Iterator[Rank]]]
    ) -> None:
        """Request the checks of the next candidates of queues that were open a moment ago."""
        lines = [
            [
                (rank, queue),
                *((following, queue) for following in islice(ranks, PREFLIGHTS_AHEAD - 1)),
            ]
            for rank, queue, ranks in blocked_heads
        ]
        for rank, queue in islice(merge(*lines, key=itemgetter(0)), PREFLIGHTS_AHEAD):
            node, candidate = self._nodes[rank.name], self._queues.candidates[rank.name]
            status = preflight_status(node, candidate, self._before.get(rank.name), self._now.at)
            if status.phase is PreflightPhase.NEEDED:
                self._request_check(node, candidate, queue.wait(self._now.at))

    def repeat_checks(self) -> None:
        """Repeat failed checks, a few at a time."""
        free = max(0, RECHECKS_AT_ONCE - len(self._queues.rechecking))
        for _, name in islice(self._queues.due, free):
            blocked_wait = self._queues.blocked[name].wait
            if blocked_wait is not None:
                self._request_check(self._nodes[name], self._queues.candidates[name], blocked_wait)


def next_token(node: NodeView) -> int:
    """Return one more than the highest token that the node or any of its agents has."""
    tokens = [0]
    if isinstance(node.record, NodeRecord):
        tokens.append(node.record.token)
    if isinstance(node.lease, NodeLease):
        tokens.append(node.lease.token)
    for component in node.components.values():
        tokens.append(component.highest_order.token)
        if component.slot is not None and component.slot.node_uid == node.uid:
            tokens.append(component.slot.token)
    return 1 + max(tokens)
