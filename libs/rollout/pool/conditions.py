"""Why nothing starts in a pool, and the conditions of its Rollout for `kubectl wait`.

The time of a condition changes with its status only, so that nothing is written while nothing
changes.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from libs.contracts.rollout import (
    BY_CHECKED_BRAKE,
    Brake,
    ConditionStatus,
    ConditionType,
    RolloutCondition,
    RolloutPhase,
    TargetRecord,
    braked,
)
from libs.contracts.waits import WaitCode
from libs.contracts.words import plural
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import EMPTY_STATUS, PoolView
from libs.rollout.wait_reasons import BlockReason


class PauseReason(StrEnum):
    """The reason of the condition Paused."""

    POLICY_DELETED = "PolicyDeleted"
    FOREIGN_OPERATOR = "ForeignOperator"
    REBUILT = "Rebuilt"
    BRAKE = "Brake"
    AUTO_UPGRADE_OFF = "AutoUpgradeOff"
    POLICY_INVALID = "PolicyInvalid"


class Pause(NamedTuple):
    """Why nothing starts in a pool, except by hand where `autoUpgrade` is off."""

    reason: PauseReason
    block: BlockReason


NO_NODES: Final = "the policy selects no node with GPUs"
_PHASES: Final[Mapping[RolloutPhase, str]] = {
    RolloutPhase.PROVEN: "the driver is proven, and not all nodes have it",
    RolloutPhase.HALTED: "the driver is halted, and not all nodes have it",
    RolloutPhase.NO_NODES: NO_NODES,
    RolloutPhase.POLICY_DELETED: "the policy was deleted; the nodes keep the driver that they have",
    RolloutPhase.COMPLETE: "all nodes have the driver, or are skipped or excluded",
}


_HALT_ENDS: Final = "it ends with spec.release, or with another driver"
_DONE: Final = (RolloutPhase.COMPLETE, RolloutPhase.NO_NODES, RolloutPhase.POLICY_DELETED)
"""The phases in which nothing is left to do."""
_ASIDE: Final = (
    "all nodes have the driver; of those in flight the GPUs are divided, or it is validated again"
)


def proof_text(threshold: int) -> str:
    """Return on how many nodes a driver must be validated, to follow its name."""
    return f"must be validated on {plural(threshold, 'node')} before the others may start"


def pool_pause(pool: PoolView, tally: PoolTally, now: Instant) -> Pause | None:
    """Return why nothing starts in the pool; None: nodes may start."""
    key, foreign = pool.key, now.visibility.foreign_operator
    if pool.gone:
        detail = f"the policy of pool {key} was deleted"
        return Pause(PauseReason.POLICY_DELETED, BlockReason(WaitCode.POLICY_GONE, detail))
    if foreign:
        block = BlockReason(WaitCode.FOREIGN_OPERATOR, foreign)
        return Pause(PauseReason.FOREIGN_OPERATOR, block)
    if is_rebuilt(pool, tally):
        detail = (
            f"Rollout {key} was lost or deleted; it was rebuilt from the Nodes, and is paused until"
            " an administrator has checked it (spec.brake: Pause)"
        )
        who = f"an administrator, {BY_CHECKED_BRAKE}"
        return Pause(PauseReason.REBUILT, BlockReason(WaitCode.PAUSED, detail, who))
    if pool.rollout_spec.brake is Brake.PAUSE:
        return Pause(PauseReason.BRAKE, BlockReason(WaitCode.PAUSED, _brake_detail(pool)))
    if pool.errors:
        who = "the author of the policy or of its RolloutStrategy"
        block = BlockReason(WaitCode.PAUSED, "; ".join(pool.errors), who)
        return Pause(PauseReason.POLICY_INVALID, block)
    if not pool.upgrade.auto_upgrade:
        by = f", set by {pool.auto_upgrade_off_by}" if pool.auto_upgrade_off_by else ""
        detail = (
            f"autoUpgrade is off in the policy{by}: a node keeps its driver until somebody deletes"
            " its driver pod"
        )
        who = (
            "an administrator, by deleting the driver pod of the node; the author of the policy, by"
            " autoUpgrade"
        )
        return Pause(PauseReason.AUTO_UPGRADE_OFF, BlockReason(WaitCode.PAUSED, detail, who))
    return None


def pause_detail(pool: PoolView, pause: Pause | None) -> str:
    """Return why nothing starts, as far as the target is not halted; empty: nodes may start."""
    if pool.rollout_spec.brake is Brake.FREEZE:
        return _brake_detail(pool)
    return "" if pause is None else pause.block.detail


def frozen_detail(pool: PoolView) -> str:
    """Return why no node moves; the time of a freeze is recorded just after its end."""
    if pool.rollout_spec.brake is Brake.FREEZE:
        return _brake_detail(pool)
    return f"Rollout {pool.key} was frozen until a moment ago"


def _brake_detail(pool: PoolView) -> str:
    rollout, brake = pool.rollout, pool.rollout_spec.brake
    if rollout is None:
        return braked(pool.key, brake)
    return braked(pool.key, brake, by=rollout.brake_set_by, reason=rollout.brake_reason)


def is_rebuilt(pool: PoolView, tally: PoolTally) -> bool:
    """Whether the Rollout was rebuilt from the Nodes, and its brake not released since."""
    rollout = pool.rollout
    if rollout is not None and rollout.spec.brake is not Brake.PAUSE:
        return False
    if rollout is None or replace(rollout.status, epoch=0, observed_generation=0) == EMPTY_STATUS:
        return tally.managed_count > 0
    return any(condition.reason == PauseReason.REBUILT for condition in rollout.status.conditions)


def rollout_conditions(
    pool: PoolView,
    pause: Pause | None,
    phase: RolloutPhase,
    *,
    halted: TargetRecord | None,
    threshold: int,
    is_aside: bool,
    is_idle: bool,
    now: Instant,
) -> tuple[RolloutCondition, ...]:
    """Return the conditions; one whose status did not change keeps its time.

    `is_aside`: the driver is complete, but for nodes that go on with it. `is_idle`: no node is in
    flight.
    """
    rollout = pool.rollout
    before = () if rollout is None else rollout.status.conditions
    since = {(each.type, each.status): each.last_transition_time for each in before}
    generation = 0 if rollout is None else rollout.generation
    at = _timestamp(int(now.at))
    conditions: list[RolloutCondition] = []
    for type_, is_true, reason, message in _facts(
        pool,
        pause,
        phase,
        halted=halted,
        threshold=threshold,
        is_aside=is_aside,
        is_idle=is_idle,
    ):
        status = ConditionStatus.TRUE if is_true else ConditionStatus.FALSE
        conditions.append(
            RolloutCondition(
                type=type_,
                status=status,
                reason=reason,
                message=message,
                last_transition_time=since.get((type_, status), at),
                observed_generation=generation,
            )
        )
    return tuple(conditions)


@lru_cache(maxsize=16)
def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _facts(
    pool: PoolView,
    pause: Pause | None,
    phase: RolloutPhase,
    *,
    halted: TargetRecord | None,
    threshold: int,
    is_aside: bool,
    is_idle: bool,
) -> Iterator[tuple[ConditionType, bool, str, str]]:
    """Yield type, status, reason and message of each condition."""
    is_proving = phase is RolloutPhase.PROVING
    progress = f"the driver {proof_text(threshold)}" if is_proving else _PHASES[phase]
    if is_aside:
        yield ConditionType.COMPLETE, True, RolloutPhase.COMPLETE.value, _ASIDE
    else:
        yield ConditionType.COMPLETE, phase is RolloutPhase.COMPLETE, phase.value, progress
    if halted is not None:
        message = f"{halted.halted_because}; {_HALT_ENDS}"
        cause = "Vanished" if halted.is_halted_by_vanished else "FailureThreshold"
        yield ConditionType.HALTED, True, cause, message
    else:
        yield ConditionType.HALTED, False, "NotHalted", ""
    if pool.rollout_spec.brake is Brake.FREEZE:
        yield ConditionType.PAUSED, True, PauseReason.BRAKE.value, pause_detail(pool, pause)
    elif pause is not None:
        yield ConditionType.PAUSED, True, pause.reason.value, pause_detail(pool, pause)
    else:
        yield ConditionType.PAUSED, False, "NotPaused", ""
    stuck, paused = _why_stuck(pause, halted), pause_detail(pool, pause)
    by_hand = is_idle and pause is not None and pause.reason is PauseReason.AUTO_UPGRADE_OFF
    is_done = not stuck and (is_aside or phase in _DONE or by_hand)
    frozen = pool.rollout_spec.brake is Brake.FREEZE
    held = PauseReason.BRAKE if frozen else pause and pause.reason
    reason = held.value if held else phase.value
    yield ConditionType.READY, is_done, reason, paused if by_hand else ""
    goes_on = not (is_done or stuck)
    yield ConditionType.RECONCILING, goes_on, reason, (paused or progress) if goes_on else ""
    yield ConditionType.STALLED, bool(stuck), reason if stuck else "NotStalled", stuck


def _why_stuck(pause: Pause | None, halted: TargetRecord | None) -> str:
    """Return why the rollout goes on only when a person acts; empty: it may go on by itself.

    A brake is none of these reasons: who set it takes it off, and what waits for it goes on then.
    """
    if halted is not None:
        return f"{halted.halted_because}; {_HALT_ENDS}"
    if pause is not None and pause.reason is PauseReason.POLICY_INVALID:
        return pause.block.detail
    return ""
