"""How many more nodes may start in a pool, by each of its limits, while starts are granted."""

from enum import Enum, auto
from itertools import islice

from libs.contracts.node import WaitCode
from libs.contracts.rollout import TargetRecord
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
    RECOVERY = auto()
    PROOF = auto()
    PARALLEL = auto()
    UNAVAILABLE = auto()


class Headroom:
    """Headroom of one pool at one moment; each granted start reduces it."""

    def __init__(self, pool: PoolView, tally: PoolTally, evaluation: PoolEvaluation) -> None:
        self._pool = pool
        self._tally = tally
        self._evaluation = evaluation
        self._recovering = bool(tally.recovering - evaluation.withdrawn)
        self._available = evaluation.limit - len(tally.unavailable) - self._granted_available()
        self._parallel = self._parallel_left()
        self._starts_left: dict[str, int | None] = {}

    def _granted_available(self) -> int:
        """Return how many available nodes were granted, and become unavailable when they begin."""
        return sum(
            lowers_capacity(node)
            for uid, node in self._tally.pending.items()
            if uid not in self._evaluation.withdrawn
        )

    def _parallel_left(self) -> int | None:
        limit = self._pool.upgrade.max_parallel_upgrades
        if limit == 0:
            return None
        entries = self._evaluation.stored.in_flight
        returned = sum(not entries[uid].outside for uid in self._evaluation.withdrawn)
        return limit - len(self._tally.parallel) + returned

    def _starts_left_on(self, target: str) -> int | None:
        if not target:
            return None
        if target not in self._starts_left:
            in_flight = self._tally.in_flight[target] - self._evaluation.withdrawn
            if target == self._pool.target:
                retargeted = self._evaluation.retargeted.items()
                in_flight |= {uid for uid, entry in retargeted if not entry.outside}
            self._starts_left[target] = harm.starts_left(self._record(target), in_flight)
        return self._starts_left[target]

    def _record(self, target: str) -> TargetRecord:
        return self._evaluation.record(self._pool, target, self._tally.present)

    def _proof_exhausted(self, key: QueueKey) -> bool:
        left = self._starts_left_on(key.target)
        return left is not None and left < (0 if key.already_failed else 1)

    def take(self, key: QueueKey) -> None:
        """Count a start that is granted, or held for a pending preflight check."""
        if key.validates_only:
            return
        self._available -= key.costs_budget
        if key.is_recovery:
            self._recovering = True
            return
        if self._parallel is not None:
            self._parallel -= 1
        left = self._starts_left_on(key.target)
        if left is not None and not key.already_failed:
            self._starts_left[key.target] = left - 1

    def is_open(self, key: QueueKey) -> bool:
        return self._limit(key) is None

    def block_reason(self, key: QueueKey) -> BlockReason | None:
        match self._limit(key):
            case _Limit.STOP:
                return self._evaluation.blocked_by
            case _Limit.HALT:
                return self._halt_reason(key.target)
            case _Limit.RECOVERY:
                detail = (
                    "waiting for another previously failed node: these are upgraded one at a time"
                )
                return block_reason(WaitCode.BUDGET, detail, NO_ACTION_NEEDED)
            case _Limit.PROOF:
                return self._proof_reason(key.target)
            case _Limit.PARALLEL:
                return self._parallel_reason()
            case _Limit.UNAVAILABLE:
                return self._unavailable_reason()
            case None:
                return None

    def _limit(self, key: QueueKey) -> _Limit | None:
        """Return the first limit that blocks such a candidate."""
        if self._evaluation.blocked_by is not None:
            return _Limit.STOP
        if key.validates_only:
            return None
        if harm.is_halted(self._record(key.target)):
            return _Limit.HALT
        if key.is_recovery:
            if self._recovering:
                return _Limit.RECOVERY
        elif self._proof_exhausted(key):
            return _Limit.PROOF
        elif self._parallel is not None and self._parallel <= 0:
            return _Limit.PARALLEL
        return _Limit.UNAVAILABLE if key.costs_budget and self._available <= 0 else None

    def _halt_reason(self, target: str) -> BlockReason:
        detail = harm.halted_reason(self._record(target))
        return block_reason(WaitCode.HALTED, f"target {target} is halted: {detail}")

    def _proof_reason(self, target: str) -> BlockReason:
        record = self._record(target)
        names = self._holders(target)
        failed = f", {len(record.failed)} failed" if record.failed else ""
        return block_reason(
            WaitCode.PROOF,
            f"waiting for target {target} to be proven: validated on {len(record.validated)} of"
            f" {record.threshold} nodes{failed}; in progress: {names or 'starts granted just now'}",
            f"an administrator, by unblocking {names}" if names else NO_ACTION_NEEDED,
        )

    def _holders(self, target: str) -> str:
        """Return the nodes that are in flight for the target, the longest first."""
        names = ", ".join(name for _, name in islice(self._tally.holders[target], 3))
        others = len(self._tally.in_flight[target]) - 3
        return f"{names} and {others} more" if others > 0 else names

    def _parallel_reason(self) -> BlockReason:
        limit = self._pool.upgrade.max_parallel_upgrades
        names = self._tally.parallel.summary() or "starts granted just now"
        return block_reason(
            WaitCode.BUDGET,
            f"maxParallelUpgrades ({limit}) is reached by {names}",
        )

    def _unavailable_reason(self) -> BlockReason:
        limit, away = self._evaluation.limit, self._tally.unavailable
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
