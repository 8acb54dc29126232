"""Grant starts to the candidates of a pool in their order, within each of its limits.

A node keeps its turn while its pods are listed for the preflight check, and while its agent has
time to answer it.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from itertools import islice
from operator import itemgetter
from typing import Final

import msgspec

from libs.contracts.node import NodeLease, NodeRecord, Operation
from libs.contracts.numbers import next_number
from libs.contracts.rollout import InFlight
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout.decision import AskPreflight, Candidate, Step, Wait
from libs.rollout.limits import Freshness
from libs.rollout.pool.evaluation import PoolEvaluation
from libs.rollout.pool.headroom import Headroom
from libs.rollout.pool.queues import CandidateQueue, CandidateQueues, QueueKey, Rank
from libs.rollout.pool.tally import PoolTally
from libs.rollout.preflight import (
    PODS_UNLISTED,
    PreflightPhase,
    is_image_unrequested,
    preflight_status,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import wait

PREFLIGHTS_AHEAD: Final = 4
"""How many more preflight checks are requested than nodes may start."""

MAX_IMAGES_AHEAD: Final = 32
"""How many images at most are brought ahead; else as many as nodes may be unavailable."""

RECHECKS_AT_ONCE: Final = 8
"""How many failed preflight checks are repeated at a time."""


_ANSWER_PENDING: Final = "waiting for the driver agent to answer the preflight check"


class Allocation(msgspec.Struct, kw_only=True):
    """The grants of one pool, and the waits that follow from them."""

    entries: dict[str, InFlight] = {}
    """By uid: nodes that start."""
    names: list[str] = []
    beginning: set[str] = set()
    """Names of nodes, granted now or before, that become unavailable when they begin."""
    preflight_steps: dict[str, Step] = {}
    """By name: steps that request a preflight check."""
    waits: dict[str, Wait] = {}
    """By name: waits for another reason than that of the node's queue."""
    requeued: set[str] = set()
    """Names of the nodes in queues with another wait code than before."""
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
    # Without a driver's image to bring there is nothing to look for so far ahead.
    images_ahead = min(evaluation.limit, MAX_IMAGES_AHEAD) if _brings_images(pool) else 0
    headroom = Headroom(pool, tally, evaluation)
    allocation = Allocation(beginning=headroom.beginning)
    grants = _Grants(pool, queues, nodes, before, fresh, now, images_ahead, allocation)
    grants.grant_starts(headroom)
    grants.repeat_checks(evaluation)
    return grants.allocation


def _brings_images(pool: PoolView) -> bool:
    return any(build.image for builds in pool.builds.values() for build in builds.values())


class _Grants(msgspec.Struct, frozen=True):
    """One pass over the queues of a pool."""

    pool: PoolView
    queues: CandidateQueues
    nodes: Mapping[str, NodeView]
    before: Mapping[str, WaitCode]
    fresh: Freshness
    now: Instant
    images_ahead: int
    allocation: Allocation

    def grant_starts(self, headroom: Headroom) -> None:
        """Grant starts to the smallest ranks of all open queues; then check a few ahead."""
        open_heads: list[tuple[Rank, QueueKey, CandidateQueue, Iterator[Rank]]] = []
        blocked_heads: list[tuple[Rank, CandidateQueue, Iterator[Rank]]] = []
        for key, queue in self.queues.queues.items():
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
            headroom.take(rank.name, key)
            self._take_turn(rank.name, key)
            following = next(ranks, None)
            if following is None:
                heappop(open_heads)
            else:
                heapreplace(open_heads, (following, key, queue, ranks))
        for key, queue in self.queues.queues.items():
            if queue.set_block(headroom.block_reason(key)):
                self.allocation.requeued.update(queue.ranking.names())
        self._check_ahead(blocked_heads)

    def _take_turn(self, name: str, key: QueueKey) -> None:
        """Start the next node, or hold its turn while its check is pending."""
        node, candidate = self.nodes[name], self.queues.candidates[name]
        if node.write_pending:
            return
        status = preflight_status(node, candidate, self.before.get(name), self.now.at)
        stale_reason = "" if key.validates_only else self.fresh.stale_reason
        if stale_reason:
            self.allocation.probes = self.fresh.probes
            self.allocation.wake_at = self.fresh.wake_at
        if status.phase is PreflightPhase.NEEDED:
            detail = PODS_UNLISTED if node.pods is None else _ANSWER_PENDING
            self._request_check(node, candidate, self._preflight_wait(detail, None))
        elif status.phase is PreflightPhase.PENDING:
            detail = status.detail or _ANSWER_PENDING
            self.allocation.waits[name] = self._preflight_wait(detail, status.due)
        elif stale_reason:
            self.allocation.waits[name] = wait(WaitCode.STALE, stale_reason, self.now)
        else:
            self._start(node, candidate, lowers_capacity=key.costs_budget)

    def _start(self, node: NodeView, candidate: Candidate, *, lowers_capacity: bool) -> None:
        self.allocation.names.append(node.name)
        if lowers_capacity:
            self.allocation.beginning.add(node.name)
        self.allocation.entries[node.uid] = InFlight(
            node=node.name,
            token=next_token(node),
            target=candidate.target,
            since=self.now.at,
            outside=candidate.outside,
            validates=candidate.operation is Operation.VALIDATE,
        )
        detail = f"starting: the start is being recorded in Rollout {self.pool.key}"
        self.allocation.waits[node.name] = wait(WaitCode.BUDGET, detail, self.now, who=ITSELF)

    def _preflight_wait(self, detail: str, until: float | None) -> Wait:
        return wait(WaitCode.PREFLIGHT, detail, self.now, until, who=ITSELF)

    def _request_check(
        self,
        node: NodeView,
        candidate: Candidate,
        wait_meanwhile: Wait,
        *,
        keeps_findings: bool = False,
    ) -> None:
        if candidate.check is not None:
            asks = AskPreflight(
                boot_id=node.boot_id,
                check=candidate.check,
                awaits_pods=node.pods is None,
                keeps_findings=keeps_findings,
            )
            self.allocation.preflight_steps[node.name] = Step(
                actions=(asks,),
                because="run the preflight check before the cordon",
                wait=wait_meanwhile,
            )

    def _check_ahead(
        self, blocked_heads: list[tuple[Rank, CandidateQueue, Iterator[Rank]]]
    ) -> None:
        """Request the checks of the next candidates of queues that were open a moment ago.

        Of the ones after them, only those are checked that need an image, and once.
        """
        ahead = max(PREFLIGHTS_AHEAD, self.images_ahead)
        candidates = [
            [(rank, queue), *((following, queue) for following in islice(ranks, ahead - 1))]
            for rank, queue, ranks in blocked_heads
        ]
        following = islice(merge(*candidates, key=itemgetter(0)), ahead)
        for place, (rank, queue) in enumerate(following):
            node, candidate = self.nodes[rank.name], self.queues.candidates[rank.name]
            if place >= PREFLIGHTS_AHEAD and not is_image_unrequested(node, candidate):
                continue
            status = preflight_status(node, candidate, self.before.get(rank.name), self.now.at)
            if status.phase is PreflightPhase.NEEDED:
                self._request_check(node, candidate, queue.wait(self.now.at))

    def repeat_checks(self, evaluation: PoolEvaluation) -> None:
        """Repeat failed checks, a few at a time, of nodes that may start."""
        free = max(0, RECHECKS_AT_ONCE - len(self.queues.rechecking))
        candidates = self.queues.candidates
        due = (
            name
            for _, name in self.queues.due
            if evaluation.block_of(by_hand=candidates[name].by_hand) is None
        )
        for name in islice(due, free):
            blocked_wait = self.queues.blocked[name].wait
            if blocked_wait is not None:
                self._request_check(
                    self.nodes[name], candidates[name], blocked_wait, keeps_findings=True
                )


def next_token(node: NodeView) -> int:
    """Return one more than the highest token that the node or any of its agents has."""
    tokens: list[int] = []
    if isinstance(node.record, NodeRecord):
        tokens.append(node.record.token)
    if isinstance(node.lease, NodeLease):
        tokens.append(node.lease.token)
    for component in node.components.values():
        tokens.append(component.highest_order.token)
        if component.slot is not None and component.slot.node_uid == node.uid:
            tokens.append(component.slot.token)
    return next_number(tokens)
