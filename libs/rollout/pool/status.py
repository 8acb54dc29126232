"""The write of a pool's Rollout, with its status: entries, targets, phase and counts."""

from collections.abc import Mapping, Set

from msgspec.structs import replace

from libs.contracts.rollout import (
    IDLE_PHASES,
    SHORT_TARGET,
    Brake,
    Counts,
    InFlight,
    RolloutPhase,
    RolloutStatus,
    TargetRecord,
    left_out,
)
from libs.rollout.decision import WriteRollout
from libs.rollout.limits import stale_source
from libs.rollout.pool import harm
from libs.rollout.pool.allocation import Allocation
from libs.rollout.pool.conditions import NO_NODES, is_rebuilt, pause_detail, rollout_conditions
from libs.rollout.pool.evaluation import PoolEvaluation
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView


def rollout_write(
    pool: PoolView,
    tally: PoolTally,
    evaluation: PoolEvaluation,
    grant: Allocation,
    *,
    counts: Counts,
    held_up: Set[str],
    now: Instant,
) -> WriteRollout | None:
    """Write the Rollout; create it paused if nodes show that an earlier one was lost."""
    rollout = pool.rollout
    if rollout is None:
        if pool.gone or stale_source(now):
            return None
        status = rollout_status(pool, tally, evaluation, granted={}, counts=counts, now=now)
        was_lost = is_rebuilt(pool, tally)
        return WriteRollout(
            pool=pool.key,
            status=status,
            brake=Brake.PAUSE if was_lost else None,
            has_finalizer=is_open(pool, status),
            because="the Rollout was lost: rebuilt from the Nodes"
            if was_lost
            else "the pool has no Rollout yet",
        )
    if rollout.write_pending or not evaluation.constraints.leading:
        return None
    status = rollout_status(pool, tally, evaluation, granted=grant.entries, counts=counts, now=now)
    has_finalizer = is_open(pool, status)
    is_held_up = bool(held_up) and any(entry.node in held_up for entry in status.in_flight.values())
    is_same = has_finalizer == rollout.has_finalizer and not (is_held_up and rollout.status.eta)
    if is_same and not is_worth_writing(status, rollout.status):
        return None
    return WriteRollout(
        pool=pool.key,
        uid=rollout.uid,
        revision=rollout.revision,
        status=status,
        has_finalizer=has_finalizer,
        granted=tuple(grant.names),
        has_known_end=not is_held_up,
        because=_because(rollout.status, status, len(grant.names)),
    )


def _because(stored: RolloutStatus, status: RolloutStatus, starts: int) -> str:
    parts: list[str] = []
    if status.target != stored.target:
        parts.append(f"target: {status.target}")
    if status.phase != stored.phase:
        parts.append(f"{status.phase.value}{f': {status.because}' if status.because else ''}")
    if starts:
        parts.append(f"nodes started: {starts}")
    if ended := len(stored.in_flight) + starts - len(status.in_flight):
        parts.append(f"nodes finished: {ended}")
    return "; ".join(parts) or "status of nodes updated"


def rollout_status(
    pool: PoolView,
    tally: PoolTally,
    evaluation: PoolEvaluation,
    *,
    granted: Mapping[str, InFlight],
    counts: Counts,
    now: Instant,
) -> RolloutStatus:
    """Return the status; `counts` lack the nodes in flight and the limit."""
    in_flight = _in_flight(tally, evaluation, granted)
    records = _records(
        pool, tally, evaluation, [*evaluation.retargeted.values(), *granted.values()]
    )
    target = evaluation.target
    complete = not in_flight and counts.done + counts.skipped + counts.excluded == counts.total
    phase = _phase(pool, records.get(target), complete=complete, total=counts.total)
    last_good = evaluation.constraints.last_good
    halted = records[target] if phase is RolloutPhase.HALTED else None
    since, seconds = _frozen(evaluation, now.at)
    return RolloutStatus(
        version=evaluation.version,
        target=target,
        short_target=target[:SHORT_TARGET],
        phase=phase,
        progress=f"{counts.done}/{counts.total}",
        because=(halted.halted_because if halted else "")
        or pause_detail(pool, evaluation.pause)
        or _remark(phase, counts),
        epoch=now.epoch,
        base=_base(tally, evaluation, in_flight, phase),
        last_good=last_good,
        frozen_since=since,
        frozen_seconds=seconds,
        in_flight=in_flight,
        targets=_kept_records(records, target, last_good, in_flight, complete=complete, now=now.at),
        counts=replace(counts, in_flight=len(in_flight), limit=evaluation.limit),
        conditions=rollout_conditions(
            pool,
            evaluation.pause,
            phase,
            halted=halted,
            threshold=evaluation.record(pool, target, tally.present).threshold,
            is_aside=_is_aside(evaluation.stored, target, phase, in_flight, counts),
            is_idle=not in_flight,
            now=now,
        ),
        observed_generation=pool.rollout.generation if pool.rollout is not None else 0,
    )


def _is_aside(
    stored: RolloutStatus,
    target: str,
    phase: RolloutPhase,
    in_flight: Mapping[str, InFlight],
    counts: Counts,
) -> bool:
    """Whether the driver was complete, and all others are nodes that go on with it: their GPUs are
    divided, or it is validated again.
    """
    others = counts.total - counts.done - counts.skipped - counts.excluded
    return (
        stored.is_complete
        and stored.target == target
        and phase in (RolloutPhase.PROVING, RolloutPhase.PROVEN)
        and others <= len(in_flight)
        and bool(in_flight)
        and not any(each.target and not each.validates for each in in_flight.values())
    )


def _remark(phase: RolloutPhase, counts: Counts) -> str:
    """Tell which nodes a rollout with nothing to do lacks; empty: none, or it is under way."""
    if phase is RolloutPhase.NO_NODES:
        return NO_NODES
    is_complete = phase is RolloutPhase.COMPLETE
    return left_out(skipped=counts.skipped, excluded=counts.excluded) if is_complete else ""


def is_worth_writing(status: RolloutStatus, stored: RolloutStatus) -> bool:
    """Whether to write; while nodes are in flight, changed counts alone wait for the next write,
    unless people began to keep nodes out, or let them in.
    """
    counts, before = status.counts, stored.counts
    if counts != before and not status.in_flight:
        return True
    if (counts.skipped, counts.excluded) != (before.skipped, before.excluded):
        return True
    shown = {"counts": status.counts, "progress": status.progress, "eta": status.eta}
    return status != replace(stored, **shown)


def is_open(pool: PoolView, status: RolloutStatus) -> bool:
    """Whether deleting the object would lose information."""
    if pool.gone or status.phase in IDLE_PHASES:
        return bool(status.in_flight)
    return bool(status.in_flight or status.targets)


def _in_flight(
    tally: PoolTally, evaluation: PoolEvaluation, granted: Mapping[str, InFlight]
) -> dict[str, InFlight]:
    stored = evaluation.stored.in_flight
    ended = tally.endings.keys() | evaluation.withdrawn
    if not (ended or tally.differing or evaluation.retargeted or granted):
        return stored
    entries = dict(stored)
    for uid in ended:
        entries.pop(uid, None)
    return {**entries, **tally.differing, **evaluation.retargeted, **granted}


def _records(
    pool: PoolView, tally: PoolTally, evaluation: PoolEvaluation, entries: list[InFlight]
) -> dict[str, TargetRecord]:
    """Add the records of targets that are granted for the first time."""
    first_targets = {entry.target for entry in entries if entry.target and not entry.outside}
    return {
        **evaluation.records,
        **{
            target: evaluation.record(pool, target, tally.present)
            for target in first_targets - evaluation.records.keys()
        },
    }


def _phase(
    pool: PoolView, record: TargetRecord | None, *, complete: bool, total: int
) -> RolloutPhase:
    if pool.gone:
        return RolloutPhase.POLICY_DELETED
    if complete and total:
        return RolloutPhase.COMPLETE
    if complete and not (record is not None and record.is_halted_by_vanished):
        # Where all nodes have vanished, the halt is what people have to see.
        return RolloutPhase.NO_NODES
    if record is None:
        return RolloutPhase.PROVING
    if record.halted_because:
        return RolloutPhase.HALTED
    return RolloutPhase.PROVEN if record.proven else RolloutPhase.PROVING


def _base(
    tally: PoolTally,
    evaluation: PoolEvaluation,
    in_flight: Mapping[str, InFlight],
    phase: RolloutPhase,
) -> int:
    """Set the base with the first grant; a joined node counts once it was done."""
    if phase in IDLE_PHASES:
        return evaluation.stored.base
    if evaluation.base:
        return max(evaluation.base, tally.base_count)
    return tally.present if in_flight else 0


def _kept_records(
    records: Mapping[str, TargetRecord],
    wanted: str,
    last_good: str,
    in_flight: Mapping[str, InFlight],
    *,
    complete: bool,
    now: float,
) -> dict[str, TargetRecord]:
    """Keep every target that is wanted, in flight, halted or last-good."""
    entries: dict[str, TargetRecord] = {}
    for target, record in records.items():
        if target == wanted:
            entries[target] = harm.completed_record(record, complete=complete, now=now)
            continue
        in_flight_for = any(entry.target == target for entry in in_flight.values())
        if in_flight_for or target == last_good or not harm.can_be_dropped(record):
            entries[target] = record
    return entries


def _frozen(evaluation: PoolEvaluation, now: float) -> tuple[float | None, float]:
    stored = evaluation.stored
    if evaluation.spec.brake is Brake.FREEZE:
        return (now if stored.frozen_since is None else stored.frozen_since, stored.frozen_seconds)
    return None, evaluation.constraints.frozen_seconds
