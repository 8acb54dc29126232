"""How many starts the limits of a pool still allow, and which limit blocks a candidate."""

from collections.abc import Callable, Mapping, Set
from heapq import nsmallest

from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout.pool import harm
from libs.rollout.pool.evaluation import PoolEvaluation
from libs.rollout.pool.queues import QueueKey
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import BlockReason

_STARTING = "starting"
_LIMITS = "the author of the policy, by raising maxUnavailable"


class Headroom:
    """The starts that the limits of one pool still allow; each granted start reduces them."""

    def __init__(self, pool: PoolView, tally: PoolTally, evaluation: PoolEvaluation) -> None:
        self._pool = pool
        self._tally = tally
        self._evaluation = evaluation
        self._recovering = bool(tally.recovering - evaluation.withdrawn)
        self.beginning = _beginning(tally, evaluation)
        """Names of granted nodes, available so far, that become unavailable when they begin."""
        self._available = evaluation.limit - len(tally.unavailable) - len(self.beginning)
        self._taken: dict[str, QueueKey] = {}
        """By name: starts of this round."""
        self._parallel = self._parallel_left()
        self._starts_left: dict[str, int | None] = {}

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

    def take(self, name: str, key: QueueKey) -> None:
        """Count a start that is granted, or held for a pending preflight check."""
        if key.validates_only:
            return
        self._taken[name] = key
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
        limit = self._limit(key)
        return None if limit is None else limit(key.target)

    def _limit(self, key: QueueKey) -> Callable[[str], BlockReason] | None:
        """Return the first limit that blocks such a candidate: the function that describes it."""
        if (blocked_by := self._evaluation.block_of(by_hand=key.by_hand)) is not None:
            return lambda _target: blocked_by
        if key.validates_only:
            return None
        if key.target in self._evaluation.constraints.halted:
            return self._halt_reason
        if key.is_recovery:
            if self._recovering:
                return self._recovery_reason
        elif self._proof_exhausted(key):
            return self._proof_reason
        elif self._parallel is not None and self._parallel <= 0:
            return self._parallel_reason
        return self._unavailable_reason if key.costs_budget and self._available <= 0 else None

    def _recovery_reason(self, _target: str) -> BlockReason:
        detail = "waiting for another previously failed node: these are upgraded one at a time"
        return BlockReason(WaitCode.BUDGET, detail, ITSELF)

    def _halt_reason(self, target: str) -> BlockReason:
        detail = self._evaluation.constraints.halted[target]
        return BlockReason(WaitCode.HALTED, f"target {target} is halted: {detail}")

    def _proof_reason(self, target: str) -> BlockReason:
        record = self._record(target)
        in_flight = self._tally.in_flight[target]
        again = {uid for uid in record.failed if uid in in_flight}
        retried = {self._tally.contributions[uid].name for uid in again}
        names, busy = self._holders(target), self._holders(target, retried)
        starting = {name: _STARTING for name, key in self._taken.items() if key.target == target}
        count = len(record.failed) - len(again)
        failed = f" ({count} failed, and would not count if validated later)" if count else ""
        gone = len(record.harmed) - len(record.failed)
        failed += f" ({gone} vanished, and may have failed)" if gone else ""
        return BlockReason(
            WaitCode.PROOF,
            f"waiting for target {target} to be proven: validated on {len(record.validated)} of"
            f" {record.threshold} nodes{failed}; in progress: {busy or _summary(starting)}",
            f"{ITSELF}; an administrator, if {names} cannot go on" if names else ITSELF,
        )

    def _holders(self, target: str, retried: Set[str] = frozenset()) -> str:
        """Return the nodes that are in flight for the target, the longest first."""
        names = ", ".join(
            f"{name} (failed before)" if name in retried else name
            for _, name in sorted(self._tally.holders[target])[:3]
        )
        others = len(self._tally.in_flight[target]) - 3
        return f"{names} and {others} more" if others > 0 else names

    def _parallel_reason(self, _target: str) -> BlockReason:
        limit = self._pool.upgrade.max_parallel_upgrades
        names = _summary({**self._tally.parallel, **dict.fromkeys(self._taken, _STARTING)})
        return BlockReason(WaitCode.BUDGET, f"maxParallelUpgrades ({limit}) is reached by {names}")

    def _unavailable_reason(self, _target: str) -> BlockReason:
        limit = self._evaluation.limit
        if limit == 0:
            return BlockReason(
                WaitCode.BUDGET,
                "maxUnavailable is 0, so no available node can be upgraded",
                _LIMITS,
            )
        taken = [name for name, key in self._taken.items() if key.costs_budget]
        starting = dict.fromkeys((*self.beginning, *taken), _STARTING)
        unavailable = {**starting, **self._tally.unavailable}
        return BlockReason(
            WaitCode.BUDGET,
            f"{len(unavailable)} of at most {limit} nodes (maxUnavailable) are unavailable:"
            f" {_summary(unavailable)}",
        )


def _beginning(tally: PoolTally, evaluation: PoolEvaluation) -> set[str]:
    return {
        node.name
        for uid, node in tally.pending.items()
        if node.lowers_capacity and uid not in evaluation.withdrawn
    }


def _summary(reasons: Mapping[str, str]) -> str:
    """Name the first three nodes with their reasons, and count the others."""
    names = ", ".join(f"{name} ({reasons[name]})" for name in nsmallest(3, reasons))
    others = len(reasons) - 3
    return f"{names} and {others} more" if others > 0 else names
