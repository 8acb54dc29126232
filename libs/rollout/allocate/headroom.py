"""How many more nodes may start in a pool, by each of its limits, while starts are granted."""

from enum import Enum, auto
from itertools import islice

from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout import harm
from libs.rollout.allocate.queues import QueueKey
from libs.rollout.reconcile.block_reasons import BlockReason, block_reason
from libs.rollout.reconcile.evaluation import PoolEvaluation, lowers_capacity
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import NO_ACTION_NEEDED

_LIMITS = "the author of the policy, by raising maxUnavailable"


class _Limit(Enum):
    """Limits in the order in which they are reported."""

    STOP = auto()
    HALT = auto()
    HEALING = auto()
    PROOF = auto()
    PARALLEL = auto()
    UNAVAILABLE = auto()


class Headroom:
    """Headroom of one pool at one moment; each granted start reduces it."""

    def __init__(self, pool: PoolView, tally: PoolTally, reckoning: PoolEvaluation) -> None:
        self._pool = pool
        self._tally = tally
        self._reckoning = reckoning
        self._healing = bool(tally.recovering - reckoning.withdrawn)
        self._available = reckoning.limit - len(tally.unavailable) - self._promised()
        self._parallel = self._parallel_left()
        self._proof: dict[str, int | None] = {}

    def _promised(self) -> int:
        """Return how many available nodes were granted, and become unavailable when they begin."""
        return sum(
            lowers_capacity(one)
            for uid, one in self._tally.pending.items()
            if uid not in self._reckoning.withdrawn
        )

    def _parallel_left(self) -> int | None:
        most = self._pool.upgrade.max_parallel_upgrades
        if most == 0:
            return None
        entries = self._reckoning.stored.in_flight
        back = sum(not entries[uid].outside for uid in self._reckoning.withdrawn)
        return most - len(self._tally.parallel) + back

    def _proof_left(self, target: str) -> int | None:
        if not target:
            return None
        if target not in self._proof:
            flying = self._tally.in_flight[target] - self._reckoning.withdrawn
            if target == self._pool.target:
                moved = self._reckoning.retargeted.items()
                flying |= {uid for uid, entry in moved if not entry.outside}
            self._proof[target] = harm.starts_left(self._record(target), flying)
        return self._proof[target]

    def _record(self, target: str) -> TargetRecord:
        return self._reckoning.record(self._pool, target, self._tally.present)

    def _too_unproven(self, lot: QueueKey) -> bool:
        left = self._proof_left(lot.target)
        return left is not None and left < (0 if lot.already_failed else 1)

    def take(self, lot: QueueKey) -> None:
        """Count a start that is granted, or held for a pending preflight check."""
        if lot.validates_only:
            return
        self._available -= lot.costs_budget
        if lot.is_recovery:
            self._healing = True
            return
        if self._parallel is not None:
            self._parallel -= 1
        left = self._proof_left(lot.target)
        if left is not None and not lot.already_failed:
            self._proof[lot.target] = left - 1

    def is_open(self, lot: QueueKey) -> bool:
        return self._limit(lot) is None

    def block_reason(self, lot: QueueKey) -> BlockReason | None:
        match self._limit(lot):
            case _Limit.STOP:
                return self._reckoning.blocked_by
            case _Limit.HALT:
                return self._halted(lot.target)
            case _Limit.HEALING:
                why = "waiting for another previously failed node: these are upgraded one at a time"
                return block_reason(WaitCode.BUDGET, why, NO_ACTION_NEEDED)
            case _Limit.PROOF:
                return self._proving(lot.target)
            case _Limit.PARALLEL:
                return self._too_many()
            case _Limit.UNAVAILABLE:
                return self._unavailable()
            case None:
                return None

    def _limit(self, lot: QueueKey) -> _Limit | None:
        """Return the first limit that blocks such a candidate."""
        if self._reckoning.blocked_by is not None:
            return _Limit.STOP
        if lot.validates_only:
            return None
        if harm.is_halted(self._record(lot.target)):
            return _Limit.HALT
        if lot.is_recovery:
            if self._healing:
                return _Limit.HEALING
        elif self._too_unproven(lot):
            return _Limit.PROOF
        elif self._parallel is not None and self._parallel <= 0:
            return _Limit.PARALLEL
        return _Limit.UNAVAILABLE if lot.costs_budget and self._available <= 0 else None

    def _halted(self, target: str) -> BlockReason:
        why = harm.halted_reason(self._record(target))
        return block_reason(WaitCode.HALTED, f"target {target} is halted: {why}")

    def _proving(self, target: str) -> BlockReason:
        record = self._record(target)
        names = self._in_the_way(target)
        failed = f", {len(record.failed)} failed" if record.failed else ""
        return block_reason(
            WaitCode.PROOF,
            f"waiting for target {target} to be proven: validated on {len(record.validated)} of"
            f" {record.threshold} nodes{failed}; in progress: {names or 'starts granted just now'}",
            f"an administrator, by unblocking {names}" if names else NO_ACTION_NEEDED,
        )

    def _in_the_way(self, target: str) -> str:
        """Return the nodes that are in flight for the target, the longest first."""
        shown = ", ".join(name for _, name in islice(self._tally.holders[target], 3))
        more = len(self._tally.in_flight[target]) - 3
        return f"{shown} and {more} more" if more > 0 else shown

    def _too_many(self) -> BlockReason:
        most = self._pool.upgrade.max_parallel_upgrades
        names = self._tally.parallel.summary() or "starts granted just now"
        return block_reason(
            WaitCode.BUDGET,
            f"maxParallelUpgrades ({most}) is reached by {names}",
        )

    def _unavailable(self) -> BlockReason:
        limit, away = self._reckoning.limit, self._tally.unavailable
        if limit == 0:
            return block_reason(
                WaitCode.BUDGET,
                "maxUnavailable is 0, so no available node can be upgraded",
                _LIMITS,
            )
        names = away.summary() or "starts granted just now"
        return block_reason(
            WaitCode.BUDGET,
            f"{len(away)} of at most {limit} nodes (maxUnavailable) are unavailable: {names}",
        )
