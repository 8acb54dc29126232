"""How many more may start in a pool, by each of its limits, while starts are granted.

Every place that is taken counts for the next one who asks. Must not know in which order they come.
"""

from enum import Enum, auto
from itertools import islice

from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout import harm
from libs.rollout.allocate.queues import Lot
from libs.rollout.reconcile.reckoning import Reckoning, costs
from libs.rollout.reconcile.stops import Stop, because
from libs.rollout.reconcile.tally import Tally
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import NOBODY

_LIMITS = "whoever edits the limits"


class _Limit(Enum):
    """What holds candidates, in the order in which it is said."""

    STOP = auto()
    HALT = auto()
    HEALING = auto()
    PROOF = auto()
    PARALLEL = auto()
    UNAVAILABLE = auto()


class Room:
    """Of one pool, at one moment."""

    def __init__(self, pool: PoolView, tally: Tally, reckoning: Reckoning) -> None:
        self._pool = pool
        self._tally = tally
        self._reckoning = reckoning
        self._healing = bool(tally.healing - reckoning.dropped)
        self._available = reckoning.limit - len(tally.unavailable) - self._promised()
        self._parallel = self._parallel_left()
        self._proof: dict[str, int | None] = {}

    def _promised(self) -> int:
        """Available nodes that were granted, and will be unavailable when they begin."""
        return sum(
            costs(one)
            for uid, one in self._tally.pending.items()
            if uid not in self._reckoning.dropped
        )

    def _parallel_left(self) -> int | None:
        most = self._pool.upgrade.max_parallel_upgrades
        if most == 0:
            return None
        entries = self._reckoning.stored.in_flight
        back = sum(not entries[uid].outside for uid in self._reckoning.dropped)
        return most - len(self._tally.parallel) + back

    def _proof_left(self, target: str) -> int | None:
        if not target:
            return None
        if target not in self._proof:
            flying = self._tally.flying[target] - self._reckoning.dropped
            if target == self._pool.target:
                moved = self._reckoning.moved.items()
                flying |= {uid for uid, entry in moved if not entry.outside}
            self._proof[target] = harm.room(self._record(target), flying)
        return self._proof[target]

    def _record(self, target: str) -> TargetRecord:
        return self._reckoning.record(self._pool, target, self._tally.present)

    def _too_unproven(self, lot: Lot) -> bool:
        left = self._proof_left(lot.target)
        return left is not None and left < (0 if lot.again else 1)

    def take(self, lot: Lot) -> None:
        """A start of this kind is granted, or a place is kept for one."""
        if lot.validates:
            return
        self._available -= lot.costs
        if lot.heals:
            self._healing = True
            return
        if self._parallel is not None:
            self._parallel -= 1
        left = self._proof_left(lot.target)
        if left is not None and not lot.again:
            self._proof[lot.target] = left - 1

    def open(self, lot: Lot) -> bool:
        """Whether one of this kind can start now."""
        return self._limit(lot) is None

    def shut(self, lot: Lot) -> Stop | None:
        """Why one of this kind cannot start now."""
        match self._limit(lot):
            case _Limit.STOP:
                return self._reckoning.stop
            case _Limit.HALT:
                return self._halted(lot.target)
            case _Limit.HEALING:
                why = "another node that had failed before is in flight: one at a time"
                return because(WaitCode.BUDGET, why, NOBODY)
            case _Limit.PROOF:
                return self._proving(lot.target)
            case _Limit.PARALLEL:
                return self._too_many()
            case _Limit.UNAVAILABLE:
                return self._unavailable()
            case None:
                return None

    def _limit(self, lot: Lot) -> _Limit | None:
        """The first that holds it."""
        if self._reckoning.stop is not None:
            return _Limit.STOP
        if lot.validates:
            return None
        if harm.halted(self._record(lot.target)):
            return _Limit.HALT
        if lot.heals:
            if self._healing:
                return _Limit.HEALING
        elif self._too_unproven(lot):
            return _Limit.PROOF
        elif self._parallel is not None and self._parallel <= 0:
            return _Limit.PARALLEL
        return _Limit.UNAVAILABLE if lot.costs and self._available <= 0 else None

    def _halted(self, target: str) -> Stop:
        why = harm.because(self._record(target))
        return because(WaitCode.HALTED, f"target {target} is halted: {why}")

    def _proving(self, target: str) -> Stop:
        record = self._record(target)
        names = self._in_the_way(target)
        failed = f", {len(record.failed)} failed" if record.failed else ""
        return because(
            WaitCode.PROOF,
            f"target {target} is validated on {len(record.validated)} of"
            f" {record.threshold} nodes{failed}; its places are taken by {names or 'new starts'}",
            f"whoever frees {names}" if names else NOBODY,
        )

    def _in_the_way(self, target: str) -> str:
        """Who holds the places of the proof, the longest first."""
        shown = ", ".join(name for _, name in islice(self._tally.holders[target], 3))
        more = len(self._tally.flying[target]) - 3
        return f"{shown} and {more} more" if more > 0 else shown

    def _too_many(self) -> Stop:
        most = self._pool.upgrade.max_parallel_upgrades
        names = self._tally.parallel.told() or "new starts"
        return because(WaitCode.BUDGET, f"maxParallelUpgrades is {most}, taken by {names}")

    def _unavailable(self) -> Stop:
        limit, away = self._reckoning.limit, self._tally.unavailable
        if limit == 0:
            return because(
                WaitCode.BUDGET, "maxUnavailable is 0: nothing that is available starts", _LIMITS
            )
        names = away.told() or "new starts"
        return because(
            WaitCode.BUDGET, f"of {limit} nodes that may be unavailable {len(away)} are: {names}"
        )
