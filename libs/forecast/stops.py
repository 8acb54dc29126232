"""What keeps the nodes of a pool from starting, and the pool as it will be after that. Pure."""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.contracts.queries import PlanStop, PlanStopKind
from libs.contracts.rollout import Brake, Release, RolloutSpec, TargetRecord
from libs.rollout.pool.conditions import PauseReason
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.pool import PoolView

_BRAKES = {Brake.PAUSE: PlanStopKind.PAUSED, Brake.FREEZE: PlanStopKind.FROZEN}
_POLICY_DELETED = PlanStop(kind=PlanStopKind.POLICY_DELETED)


def stops_of(pool: PoolView) -> tuple[PlanStop, ...]:
    """Return what keeps the nodes of a pool from starting; empty: nothing does."""
    return (_POLICY_DELETED,) if pool.gone else tuple(_stops(pool))


def _stops(pool: PoolView) -> Iterator[PlanStop]:
    if (record := halted_record(pool)) is not None:
        kind, failures = PlanStopKind.HALTED, len(record.harmed)
        yield PlanStop(kind=kind, because=record.halted_because, failures=failures)
    if (kind := _BRAKES.get(pool.rollout_spec.brake)) is not None:
        yield PlanStop(kind=kind, because=_brake_author(pool))
    if not pool.upgrade.auto_upgrade:
        by = f"set by {pool.auto_upgrade_off_by}" if pool.auto_upgrade_off_by else ""
        yield PlanStop(kind=PlanStopKind.AUTO_UPGRADE_OFF, because=by)


def _brake_author(pool: PoolView) -> str:
    """Return who set the brake, and why, as far as known."""
    rollout = pool.rollout
    if rollout is None:
        return ""
    if any(each.reason == PauseReason.REBUILT for each in rollout.status.conditions):
        return "by Sluice, as the Rollout was lost and rebuilt from the Nodes: check it first"
    by = f"by {rollout.brake_set_by}" if rollout.brake_set_by else ""
    return ": ".join(filter(None, (by, rollout.brake_reason)))


def halted_record(pool: PoolView) -> TargetRecord | None:
    """Return the record of the wanted target if it is halted."""
    record = None if pool.rollout is None else pool.rollout.status.targets.get(pool.target)
    return record if record is not None and record.halted_because else None


def without_stops(fleet: Fleet, key: str) -> Fleet:
    """Return the fleet with brake, autoUpgrade and halt of a pool released."""
    pool = _without_stops(fleet.pools[key])
    return replace(fleet, pools={**fleet.pools, key: pool})


def _without_stops(pool: PoolView) -> PoolView:
    rollout, record = pool.rollout, halted_record(pool)
    if rollout is not None:
        release = rollout.spec.release
        if record is not None:
            release = Release(target=pool.target, failures=len(record.harmed))
        rollout = replace(rollout, spec=RolloutSpec(release=release))
    upgrade = replace(pool.upgrade, auto_upgrade=True)
    return replace(pool, upgrade=upgrade, rollout=rollout)
