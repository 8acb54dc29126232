"""The status to write into the Rollout of a pool: entries, targets, phase and counts."""

from collections.abc import Mapping

from msgspec.structs import replace

from libs.contracts.rollout import (
    Brake,
    Counts,
    InFlight,
    RolloutPhase,
    RolloutStatus,
    TargetRecord,
)
from libs.rollout import harm
from libs.rollout.reconcile.block_reasons import was_enabled
from libs.rollout.reconcile.evaluation import PoolEvaluation
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView


def rollout_status(
    pool: PoolView,
    tally: PoolTally,
    reckoning: PoolEvaluation,
    *,
    granted: Mapping[str, InFlight],
    counts: Counts,
    now: Instant,
) -> RolloutStatus:
    """Return the status; `counts` lack what follows from entries and budget."""
    stored = reckoning.stored
    in_flight = _in_flight(tally, reckoning, granted)
    records = _records(pool, tally, reckoning, [*reckoning.retargeted.values(), *granted.values()])
    target = stored.target
    if was_enabled(pool) and pool.target and not (pool.gone or pool.held):
        target = pool.target
    complete = not in_flight and counts.done + counts.skipped + counts.excluded == counts.total
    phase = RolloutPhase.COMPLETE if complete else _open_phase(records.get(target))
    last_good = harm.last_good(records)
    since, seconds = _frozen(reckoning, now.at)
    return RolloutStatus(
        target=target,
        phase=phase,
        because=records[target].halted_because if phase is RolloutPhase.HALTED else "",
        epoch=now.epoch,
        base=_base(tally, reckoning, in_flight, complete=complete),
        last_good=last_good,
        frozen_since=since,
        frozen_seconds=seconds,
        in_flight=in_flight,
        targets=_kept(records, target, last_good, in_flight, complete=complete),
        counts=replace(
            counts,
            in_flight=len(in_flight),
            unavailable=len(tally.unavailable),
            limit=reckoning.limit,
        ),
        observed_generation=pool.rollout.generation if pool.rollout is not None else 0,
    )


def is_worth_writing(due: RolloutStatus, stored: RolloutStatus) -> bool:
    """Whether to write; while nodes are in flight, changed counts alone wait for the next write."""
    if due.counts != stored.counts and not due.in_flight:
        return True
    return due != replace(stored, counts=due.counts)


def is_open(pool: PoolView, due: RolloutStatus) -> bool:
    """Whether deleting the object would lose information."""
    if pool.gone or due.phase is RolloutPhase.COMPLETE:
        return bool(due.in_flight)
    return bool(due.in_flight or due.targets)


def _in_flight(
    tally: PoolTally, reckoning: PoolEvaluation, granted: Mapping[str, InFlight]
) -> dict[str, InFlight]:
    stored = reckoning.stored.in_flight
    out = tally.endings.keys() | reckoning.withdrawn
    if not (out or tally.differing or reckoning.retargeted or granted):
        return stored
    kept = dict(stored)
    for uid in out:
        kept.pop(uid, None)
    return {**kept, **tally.differing, **reckoning.retargeted, **granted}


def _records(
    pool: PoolView, tally: PoolTally, reckoning: PoolEvaluation, new: list[InFlight]
) -> dict[str, TargetRecord]:
    """Add the records of targets that are granted for the first time."""
    firsts = {entry.target for entry in new if entry.target and not entry.outside}
    return {
        **reckoning.records,
        **{
            target: reckoning.record(pool, target, tally.present)
            for target in firsts - reckoning.records.keys()
        },
    }


def _open_phase(record: TargetRecord | None) -> RolloutPhase:
    if record is None:
        return RolloutPhase.PROVING
    if harm.is_halted(record):
        return RolloutPhase.HALTED
    return RolloutPhase.PROVEN if record.proven else RolloutPhase.PROVING


def _base(
    tally: PoolTally,
    reckoning: PoolEvaluation,
    in_flight: Mapping[str, InFlight],
    *,
    complete: bool,
) -> int:
    """Set the base with the first grant; a joined node counts once it was done."""
    if complete:
        return reckoning.stored.base
    if reckoning.base:
        return max(reckoning.base, tally.base_count)
    return tally.present if in_flight else 0


def _kept(
    records: Mapping[str, TargetRecord],
    wanted: str,
    last_good: str,
    in_flight: Mapping[str, InFlight],
    *,
    complete: bool,
) -> dict[str, TargetRecord]:
    """Keep every target that is wanted, in flight, halted or last-good."""
    kept: dict[str, TargetRecord] = {}
    for target, record in records.items():
        if target == wanted:
            is_complete = complete and record.proven
            kept[target] = (
                record if is_complete == record.complete else replace(record, complete=is_complete)
            )
            continue
        flying = any(entry.target == target for entry in in_flight.values())
        if flying or target == last_good or not harm.can_be_dropped(record):
            kept[target] = record
    return kept


def _frozen(reckoning: PoolEvaluation, now: float) -> tuple[float | None, float]:
    stored = reckoning.stored
    if reckoning.spec.brake is Brake.FREEZE:
        return (now if stored.frozen_since is None else stored.frozen_since, stored.frozen_seconds)
    return None, reckoning.constraints.frozen_seconds
