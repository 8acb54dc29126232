"""Along the candidates of a pool, in their order: who starts, who is asked, who waits and why.

A node keeps its place in the order while its agent has time to answer. Must not know what is done
about a node that starts.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from itertools import islice
from operator import itemgetter
from typing import Final

import msgspec

from libs.contracts.node import Lease, Operation, Record
from libs.contracts.rollout import InFlight
from libs.contracts.waits import WaitCode
from libs.rollout.allocate.preflight import Stage, inquiry
from libs.rollout.allocate.queues import Lot, Queue, Queues
from libs.rollout.allocate.room import Room
from libs.rollout.decision import AskPreflight, Candidate, Step, Wait
from libs.rollout.freshness import Freshness
from libs.rollout.order import Rank
from libs.rollout.reconcile.reckoning import Reckoning
from libs.rollout.reconcile.tally import Tally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import NOBODY, wait

AHEAD: Final = 4
"""So many more are asked than there are places."""
AGAIN: Final = 8
"""So many of those whom their preflight blocks are asked again at a time."""


class Grant(msgspec.Struct, kw_only=True):
    """What comes of it for one pool."""

    entries: dict[str, InFlight] = {}
    """By uid: who starts."""
    names: list[str] = []
    asks: dict[str, Step] = {}
    """By name: whose agent is asked."""
    waits: dict[str, Wait] = {}
    """By name: who waits for another reason than the line in which it stands."""
    turned: list[Queue] = []
    """Lines in which another code is waited for than before."""
    probes: tuple[str, ...] = ()
    wake_at: float | None = None


def allocate(
    pool: PoolView,
    tally: Tally,
    reckoning: Reckoning,
    queues: Queues,
    *,
    nodes: Mapping[str, NodeView],
    before: Mapping[str, WaitCode],
    fresh: Freshness,
    now: Instant,
) -> Grant:
    """Who starts now; and for each line, why who stands in it does not.

    `before` is what nodes waited for at the last decision.
    """
    grant = Grant()
    room = Room(pool, tally, reckoning)
    walk = _Walk(pool, queues, grant, nodes=nodes, before=before, fresh=fresh, now=now)
    walk.along(room)
    if reckoning.stop is None:
        walk.ask_again()
    return grant


class _Walk:
    """One way along the lines of a pool."""

    def __init__(
        self,
        pool: PoolView,
        queues: Queues,
        grant: Grant,
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

    def along(self, room: Room) -> None:
        """Places go to the smallest rank of all lines that are open; then a few are asked ahead."""
        heads: list[tuple[Rank, Lot, Queue, Iterator[Rank]]] = []
        ahead: list[tuple[Rank, Queue, Iterator[Rank]]] = []
        for key, queue in self._queues.queues.items():
            if room.open(key):
                line = iter(queue.line)
                heads.append((next(line), key, queue, line))
        heapify(heads)
        while heads:
            rank, key, queue, line = heads[0]
            if not room.open(key):
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
            if queue.close(room.shut(key)):
                self._grant.turned.append(queue)
        self._ask_ahead(ahead)

    def _turn_of(self, name: str, lot: Lot) -> None:
        """There is a place for it, which it keeps while a question to it is on its way."""
        node, candidate = self._nodes[name], self._queues.candidates[name]
        if node.writing:
            return
        asked = inquiry(node, candidate, self._before.get(name), self._now.at)
        unsure = "" if lot.validates else self._fresh.unsure
        if unsure:
            self._grant.probes, self._grant.wake_at = self._fresh.probes, self._fresh.wake_at
        if asked.stage is Stage.OPEN:
            self._ask(node, candidate, self._asking(until=None))
        elif asked.stage is Stage.ASKED:
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
        why = f"its start is being written into Rollout {self._pool.key}"
        self._grant.waits[node.name] = wait(WaitCode.BUDGET, why, self._now, who=NOBODY)

    def _asking(self, *, until: float | None) -> Wait:
        why = "its driver agent is asked whether this driver could be brought up"
        return wait(WaitCode.PREFLIGHT, why, self._now, until, who=NOBODY)

    def _ask(self, node: NodeView, candidate: Candidate, until_then: Wait) -> None:
        if candidate.check is not None:
            self._grant.asks[node.name] = Step(
                actions=(AskPreflight(boot_id=node.boot_id, check=candidate.check),),
                because="ask before anything is taken away",
                wait=until_then,
            )

    def _ask_ahead(self, heads: list[tuple[Rank, Queue, Iterator[Rank]]]) -> None:
        """The next ones of lines that were open a moment ago."""
        lines = [
            [(rank, queue), *((one, queue) for one in islice(line, AHEAD - 1))]
            for rank, queue, line in heads
        ]
        for rank, queue in islice(merge(*lines, key=itemgetter(0)), AHEAD):
            node, candidate = self._nodes[rank.name], self._queues.candidates[rank.name]
            asked = inquiry(node, candidate, self._before.get(rank.name), self._now.at)
            if asked.stage is Stage.OPEN:
                self._ask(node, candidate, queue.wait(self._now.at))

    def ask_again(self) -> None:
        """Those who were blocked a minute ago, a few at a time."""
        free = max(0, AGAIN - len(self._queues.asking))
        for _, name in islice(self._queues.due, free):
            known = self._queues.blocked[name].wait
            if known is not None:
                self._ask(self._nodes[name], self._queues.candidates[name], known)


def next_token(node: NodeView) -> int:
    """One more than the highest that the node or any of its agents knows."""
    known = [0]
    if isinstance(node.record, Record):
        known.append(node.record.token)
    if isinstance(node.lease, Lease):
        known.append(node.lease.token)
    for component in node.components.values():
        known.append(component.highest.token)
        if component.slot is not None and component.slot.node_uid == node.uid:
            known.append(component.slot.token)
    return 1 + max(known)
