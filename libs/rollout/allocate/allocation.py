"""Grant starts to the candidates of a pool, in their order.

A node keeps its turn while its agent has time to answer the preflight check.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from itertools import islice
from operator import itemgetter
from typing import Final

import msgspec

from libs.contracts.node import NodeLease, NodeRecord, Operation
from libs.contracts.rollout import InFlight
from libs.contracts.waits import WaitCode
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
    reckoning: PoolEvaluation,
    queues: CandidateQueues,
    *,
    nodes: Mapping[str, NodeView],
    before: Mapping[str, WaitCode],
    fresh: Freshness,
    now: Instant,
) -> Allocation:
    """Grant starts; `before` are the wait codes of the last decision."""
    grant = Allocation()
    room = Headroom(pool, tally, reckoning)
    walk = _Walk(pool, queues, grant, nodes=nodes, before=before, fresh=fresh, now=now)
    walk.along(room)
    if reckoning.blocked_by is None:
        walk.ask_again()
    return grant


class _Walk:
    """One pass over the queues of a pool."""

    def __init__(
        self,
        pool: PoolView,
        queues: CandidateQueues,
        grant: Allocation,
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
        self._grant = grant

    def along(self, room: Headroom) -> None:
        """Grant starts to the smallest ranks of all open queues; then check a few ahead."""
        heads: list[tuple[Rank, QueueKey, CandidateQueue, Iterator[Rank]]] = []
        ahead: list[tuple[Rank, CandidateQueue, Iterator[Rank]]] = []
        for key, queue in self._queues.queues.items():
            if room.is_open(key):
                line = iter(queue.ranking)
                heads.append((next(line), key, queue, line))
        heapify(heads)
        while heads:
            rank, key, queue, line = heads[0]
            if not room.is_open(key):
                ahead.append((rank, queue, line))
                heappop(heads)
                continue
            room.take(key)
            self._turn_of(rank.name, key)
            following = next(line, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following, key, queue, line))
        for key, queue in self._queues.queues.items():
            if queue.set_block(room.block_reason(key)):
                self._grant.changed_queues.append(queue)
        self._ask_ahead(ahead)

    def _turn_of(self, name: str, lot: QueueKey) -> None:
        """Start the node whose turn it is, or hold its turn while its check is pending."""
        node, candidate = self._nodes[name], self._queues.candidates[name]
        if node.write_pending:
            return
        asked = preflight_status(node, candidate, self._before.get(name), self._now.at)
        unsure = "" if lot.validates_only else self._fresh.stale_reason
        if unsure:
            self._grant.probes, self._grant.wake_at = self._fresh.probes, self._fresh.wake_at
        if asked.phase is PreflightPhase.NEEDED:
            self._ask(node, candidate, self._asking(until=None))
        elif asked.phase is PreflightPhase.PENDING:
            self._grant.waits[name] = self._asking(until=asked.due)
        elif unsure:
            self._grant.waits[name] = wait(WaitCode.STALE, unsure, self._now)
        else:
            self._start(node, candidate)

    def _start(self, node: NodeView, candidate: Candidate) -> None:
        self._grant.names.append(node.name)
        self._grant.entries[node.uid] = InFlight(
            node=node.name,
            token=next_token(node),
            target=candidate.target,
            since=self._now.at,
            outside=candidate.outside,
            validates=candidate.operation is Operation.VALIDATE,
        )
        why = f"starting: the start is being recorded in Rollout {self._pool.key}"
        self._grant.waits[node.name] = wait(WaitCode.BUDGET, why, self._now, who=NO_ACTION_NEEDED)

    def _asking(self, *, until: float | None) -> Wait:
        why = "waiting for the driver agent to answer the preflight check"
        return wait(WaitCode.PREFLIGHT, why, self._now, until, who=NO_ACTION_NEEDED)

    def _ask(self, node: NodeView, candidate: Candidate, until_then: Wait) -> None:
        if candidate.check is not None:
            self._grant.preflight_steps[node.name] = Step(
                actions=(AskPreflight(boot_id=node.boot_id, check=candidate.check),),
                because="run the preflight check before the cordon",
                wait=until_then,
            )

    def _ask_ahead(self, heads: list[tuple[Rank, CandidateQueue, Iterator[Rank]]]) -> None:
        """Request the checks of the next candidates of queues that were open a moment ago."""
        lines = [
            [(rank, queue), *((one, queue) for one in islice(line, PREFLIGHTS_AHEAD - 1))]
            for rank, queue, line in heads
        ]
        for rank, queue in islice(merge(*lines, key=itemgetter(0)), PREFLIGHTS_AHEAD):
            node, candidate = self._nodes[rank.name], self._queues.candidates[rank.name]
            asked = preflight_status(node, candidate, self._before.get(rank.name), self._now.at)
            if asked.phase is PreflightPhase.NEEDED:
                self._ask(node, candidate, queue.wait(self._now.at))

    def ask_again(self) -> None:
        """Repeat failed checks, a few at a time."""
        free = max(0, RECHECKS_AT_ONCE - len(self._queues.rechecking))
        for _, name in islice(self._queues.due, free):
            known = self._queues.blocked[name].wait
            if known is not None:
                self._ask(self._nodes[name], self._queues.candidates[name], known)


def next_token(node: NodeView) -> int:
    """Return one more than the highest token that the node or any of its agents has."""
    known = [0]
    if isinstance(node.record, NodeRecord):
        known.append(node.record.token)
    if isinstance(node.lease, NodeLease):
        known.append(node.lease.token)
    for component in node.components.values():
        known.append(component.highest_order.token)
        if component.slot is not None and component.slot.node_uid == node.uid:
            known.append(component.slot.token)
    return 1 + max(known)
