"""The evaluation of a pool at one moment, from its Rollout and the sets of its nodes."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.rollout import (
    Brake,
    InFlight,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.rollout import budget, harm
from libs.rollout.constraints import PoolConstraints
from libs.rollout.limits import stale_source
from libs.rollout.reconcile.block_reasons import (
    BlockReason,
    pool_block_reason,
    spec_of,
    was_enabled,
)
from libs.rollout.reconcile.contribution import NodeContribution
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView

EMPTY_STATUS: Final = RolloutStatus()


class PoolEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    stored: RolloutStatus
    spec: RolloutSpec
    blocked_by: BlockReason | None
    base: int
    """0: it is set with the next grant."""
    limit: int
    records: Mapping[str, TargetRecord]
    """By target: the stored record, updated with what is newly known."""
    retargeted: Mapping[str, InFlight]
    """By uid: entries not begun irreversibly that move to the new target."""
    withdrawn: frozenset[str]
    """Uids whose entries are taken out though they could still begin."""
    held_back: frozenset[str] = frozenset()
    """Uids that must not begin now."""
    constraints: PoolConstraints

    def record(self, pool: PoolView, target: str, present: int) -> TargetRecord:
        """Return the record of a target; a new one as its first grant would create it."""
        known = self.records.get(target)
        return known or new_target_record(pool, self.spec, target, self.base or present)


def evaluate_pool(
    pool: PoolView,
    tally: PoolTally,
    now: Instant,
    *,
    leading: bool,
    before: PoolEvaluation | None = None,
) -> PoolEvaluation:
    """Evaluate the pool; `before` allows to reuse sets that did not change."""
    stored = pool.rollout.status if pool.rollout is not None else EMPTY_STATUS
    spec = spec_of(pool)
    base = 0 if stored.phase is RolloutPhase.COMPLETE else stored.base
    limit = budget.unavailable_limit(pool.upgrade, base=base, present=tally.present)
    records = _records(pool, stored, tally, base, now)
    halted = {
        target: record.halted_because
        for target, record in records.items()
        if harm.is_halted(record)
    }
    stopped = pool_block_reason(pool, now)
    frozen = spec.brake is Brake.FREEZE or stored.frozen_since is not None
    made = PoolEvaluation(
        stored=stored,
        spec=spec,
        blocked_by=stopped,
        base=base,
        limit=limit,
        records=records,
        retargeted={},
        withdrawn=frozenset(),
        constraints=PoolConstraints(
            leading=leading,
            may_mark_required=was_enabled(pool)
            and not (pool.gone or pool.held or now.visibility.foreign_operator),
            paused="" if stopped is None else stopped.detail,
            frozen=frozen,
            frozen_seconds=_frozen_seconds(stored, now.at),
            in_flight=stored.in_flight,
            halted=halted,
            proven=frozenset(
                target
                for target, record in records.items()
                if record.proven and target not in halted
            ),
            last_good=harm.last_good(records),
        ),
    )
    return made if frozen else _turned(pool, tally, made, now, before)


def new_target_record(pool: PoolView, spec: RolloutSpec, target: str, base: int) -> TargetRecord:
    return TargetRecord(
        threshold=harm.threshold(pool.strategy, base=base), accepted=harm.accepted(spec, target)
    )


def _records(
    pool: PoolView,
    stored: RolloutStatus,
    tally: PoolTally,
    base: int,
    now: Instant,
) -> dict[str, TargetRecord]:
    known, spec = dict(stored.targets), spec_of(pool)
    for sets in (tally.failed, tally.validated, tally.in_flight):
        for target, uids in sets.items():
            if uids and target not in known:
                known[target] = new_target_record(pool, spec, target, base or tally.present)
    return {
        target: harm.updated_record(
            record,
            spec,
            target,
            failed=tally.failed.get(target, ()),
            validated=tally.validated.get(target, ()),
            now=now.at,
        )
        for target, record in known.items()
    }


def _frozen_seconds(stored: RolloutStatus, now: float) -> float:
    since = stored.frozen_since
    return stored.frozen_seconds + (0.0 if since is None else max(0.0, now - since))


# What was granted for something that does not hold any more.


def _turned(
    pool: PoolView,
    tally: PoolTally,
    made: PoolEvaluation,
    now: Instant,
    before: PoolEvaluation | None,
) -> PoolEvaluation:
    """Withdraw, retarget or hold back grants whose reason no longer holds."""
    moved, released = _adrift(pool, tally, made)
    turned = {uid: one for uid, one in tally.pending.items() if _turns(pool, made, one)}
    # What may still be carried out would land where another has its place.
    dropped = frozenset(uid for uid, one in turned.items() if not one.write_unconfirmed)
    back = dropped.union(tally.endings)
    held = back.union(turned) | _held_back(tally, made, now, dropped)
    in_flight = made.stored.in_flight
    if before is not None and before.stored.in_flight is in_flight and before.held_back == held:
        lowered = before.constraints.may_begin
    else:
        lowered = frozenset(in_flight) - held
    standing = replace(
        made.constraints,
        to_release=released,
        may_begin=lowered,
        in_flight=_without(in_flight, back),
    )
    return replace(made, retargeted=moved, withdrawn=dropped, held_back=held, constraints=standing)


def _without(in_flight: Mapping[str, InFlight], uids: frozenset[str]) -> Mapping[str, InFlight]:
    if not uids:
        return in_flight
    kept = dict(in_flight)
    for uid in uids:
        kept.pop(uid, None)
    return kept


def _turns(pool: PoolView, made: PoolEvaluation, bearing: NodeContribution) -> bool:
    """Whether a granted node that has not begun must not begin any more."""
    entry = bearing.entry
    if bearing.write_pending:
        return False  # its beginning is on the way, and would land where another has its place
    if made.blocked_by is not None:
        return True
    if entry is None or entry.validates or not entry.target:
        return False
    return entry.target in made.constraints.halted or not _wanted(pool, made, bearing, entry.target)


def _wanted(pool: PoolView, made: PoolEvaluation, bearing: NodeContribution, target: str) -> bool:
    """Whether the node should still get the target it was granted for."""
    if _wanted_by_all(pool, target):
        return True
    return bearing.joining and target == made.constraints.last_good


def _wanted_by_all(pool: PoolView, target: str) -> bool:
    return bool(pool.gone or pool.held or not pool.target or target == pool.target)


def _adrift(
    pool: PoolView, tally: PoolTally, made: PoolEvaluation
) -> tuple[dict[str, InFlight], dict[str, str]]:
    """Return nodes before the start that are retargeted or released: target unwanted or halted."""
    released: dict[str, str] = {}
    adrift: list[NodeContribution] = []
    for target, bearings in tally.unstarted.items():
        lost: list[NodeContribution] = []
        if not _wanted_by_all(pool, target):
            # Where a write is on the way nobody knows whether it starts on what it was granted.
            still = (one for one in bearings.values() if not one.write_pending)
            lost = [one for one in still if not _wanted(pool, made, one, target)]
            adrift += lost
        if why := made.constraints.halted.get(target):
            stay = bearings.keys() - {one.uid for one in lost}
            released |= dict.fromkeys(stay, f"target {target} is halted: {why}")
    if not adrift:
        return {}, released
    moved, refused = _move(pool, tally, made, sorted(adrift, key=_turn))
    return moved, released | refused


def _move(
    pool: PoolView, tally: PoolTally, made: PoolEvaluation, adrift: Iterable[NodeContribution]
) -> tuple[dict[str, InFlight], dict[str, str]]:
    """Retarget nodes as far as bounded harm admits, and release the rest."""
    moved: dict[str, InFlight] = {}
    refused: dict[str, str] = {}
    record = made.record(pool, pool.target, tally.present)
    counted = tally.in_flight[pool.target].union(record.failed)
    for bearing in adrift:
        entry = bearing.entry
        if entry is None:
            continue
        grows = not entry.outside and bearing.uid not in counted
        over = len(counted) + grows > harm.allowance(record)
        if harm.is_halted(record) or (over and not (record.proven or entry.outside)):
            why = (
                f"is halted: {record.halted_because}"
                if record.halted_because
                else "may not start on more nodes until it is proven"
            )
            refused[bearing.uid] = f"the policy now wants target {pool.target}, which {why}"
            continue
        moved[bearing.uid] = replace(entry, target=pool.target)
        if grows:
            counted.add(bearing.uid)
    return moved, refused


def _held_back(
    tally: PoolTally, made: PoolEvaluation, now: Instant, dropped: frozenset[str]
) -> frozenset[str]:
    """Return granted nodes whose cordon does not fit any more, or cannot be judged now."""
    waiting = [one for uid, one in tally.pending.items() if uid not in dropped]
    held = {one.uid for one in waiting if not one.ready}
    costly = [one for one in waiting if one.ready and lowers_capacity(one)]
    if costly and stale_source(now):
        return frozenset(held.union(one.uid for one in costly))
    on_the_way = [one for one in costly if one.write_pending or one.write_unconfirmed]
    free = made.limit - len(tally.unavailable) - len(on_the_way)
    rest = sorted(
        (one for one in costly if not (one.write_pending or one.write_unconfirmed)), key=_turn
    )
    again = [one for one in on_the_way if one.write_unconfirmed] if free < 0 else []
    return frozenset(held.union(one.uid for one in (*again, *rest[max(0, free) :])))


def lowers_capacity(bearing: NodeContribution) -> bool:
    """Whether beginning makes an available node unavailable."""
    validates = bearing.entry is not None and bearing.entry.validates
    return not (bearing.unavailable or bearing.is_unoccupied or validates)


def _turn(bearing: NodeContribution) -> tuple[float, str]:
    return (0.0 if bearing.entry is None else bearing.entry.since, bearing.name)
