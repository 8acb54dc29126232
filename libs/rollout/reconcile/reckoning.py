"""Where a pool stands at one moment, before any of its nodes is asked what it does next.

From its Rollout and the sets of its nodes. Must not know candidates: who starts is decided later.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.rollout import (
    Brake,
    InFlight,
    Phase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.rollout import budget, harm
from libs.rollout.limits import stale
from libs.rollout.reconcile.bearing import Bearing
from libs.rollout.reconcile.stops import Stop, spec_of, stop, was_on
from libs.rollout.reconcile.tally import Tally
from libs.rollout.standing import Standing
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView

NEVER_OPENED: Final = RolloutStatus()


class Reckoning(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all nodes of a pool now."""

    stored: RolloutStatus
    spec: RolloutSpec
    stop: Stop | None
    base: int
    """0: it is taken at the next grant."""
    limit: int
    records: Mapping[str, TargetRecord]
    """By target: what the Rollout says, and what is newly known."""
    moved: Mapping[str, InFlight]
    """By uid: not begun irreversibly, and taken over by the new target."""
    dropped: frozenset[str]
    """Uids whose places are taken out, though they might begin."""
    held: frozenset[str] = frozenset()
    """Uids that must not begin now."""
    standing: Standing

    def record(self, pool: PoolView, target: str, present: int) -> TargetRecord:
        """Of a target, as its first grant would make it if there was none."""
        known = self.records.get(target)
        return known or fresh(pool, self.spec, target, self.base or present)


def reckon(
    pool: PoolView, tally: Tally, now: Instant, *, leading: bool, before: Reckoning | None = None
) -> Reckoning:
    """What the Rollout and the nodes say together; `before` spares what stayed the same."""
    stored = pool.rollout.status if pool.rollout is not None else NEVER_OPENED
    spec = spec_of(pool)
    base = 0 if stored.phase is Phase.COMPLETE else stored.base
    limit = budget.limit(pool.upgrade, base=base, present=tally.present)
    records = _records(pool, stored, tally, base, now)
    halted = {
        target: record.halted_because for target, record in records.items() if harm.halted(record)
    }
    stopped = stop(pool, now)
    frozen = spec.brake is Brake.FREEZE or stored.frozen_since is not None
    made = Reckoning(
        stored=stored,
        spec=spec,
        stop=stopped,
        base=base,
        limit=limit,
        records=records,
        moved={},
        dropped=frozenset(),
        standing=Standing(
            leading=leading,
            stamps=was_on(pool) and not (pool.gone or pool.held or now.sight.foreign_operator),
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


def fresh(pool: PoolView, spec: RolloutSpec, target: str, base: int) -> TargetRecord:
    """A target on which nobody was started yet."""
    return TargetRecord(
        threshold=harm.threshold(pool.strategy, base=base), accepted=harm.accepted(spec, target)
    )


def _records(
    pool: PoolView,
    stored: RolloutStatus,
    tally: Tally,
    base: int,
    now: Instant,
) -> dict[str, TargetRecord]:
    known, spec = dict(stored.targets), spec_of(pool)
    for sets in (tally.failed, tally.proved, tally.flying):
        for target, uids in sets.items():
            if uids and target not in known:
                known[target] = fresh(pool, spec, target, base or tally.present)
    return {
        target: harm.reckoned(
            record,
            spec,
            target,
            failed=tally.failed.get(target, ()),
            validated=tally.proved.get(target, ()),
            now=now.at,
        )
        for target, record in known.items()
    }


def _frozen_seconds(stored: RolloutStatus, now: float) -> float:
    since = stored.frozen_since
    return stored.frozen_seconds + (0.0 if since is None else max(0.0, now - since))


# What was granted for something that does not hold any more.


def _turned(
    pool: PoolView, tally: Tally, made: Reckoning, now: Instant, before: Reckoning | None
) -> Reckoning:
    moved, released = _adrift(pool, tally, made)
    turned = {uid: one for uid, one in tally.pending.items() if _turns(pool, made, one)}
    # What may still be carried out would land where another has its place.
    dropped = frozenset(uid for uid, one in turned.items() if not one.unsure)
    back = dropped.union(tally.endings)
    held = back.union(turned) | _held_back(tally, made, now, dropped)
    in_flight = made.stored.in_flight
    if before is not None and before.stored.in_flight is in_flight and before.held == held:
        lowered = before.standing.lowered
    else:
        lowered = frozenset(in_flight) - held
    standing = replace(
        made.standing,
        released=released,
        lowered=lowered,
        in_flight=_without(in_flight, back),
    )
    return replace(made, moved=moved, dropped=dropped, held=held, standing=standing)


def _without(in_flight: Mapping[str, InFlight], uids: frozenset[str]) -> Mapping[str, InFlight]:
    if not uids:
        return in_flight
    kept = dict(in_flight)
    for uid in uids:
        kept.pop(uid, None)
    return kept


def _turns(pool: PoolView, made: Reckoning, bearing: Bearing) -> bool:
    """Whether a node that has not begun is not to begin any more."""
    entry = bearing.entry
    if bearing.writing:
        return False  # its beginning is on the way, and would land where another has its place
    if made.stop is not None:
        return True
    if entry is None or entry.validates or not entry.target:
        return False
    return entry.target in made.standing.halted or not _wanted(pool, made, bearing, entry.target)


def _wanted(pool: PoolView, made: Reckoning, bearing: Bearing, target: str) -> bool:
    """Whether the node should still go where it was granted to go."""
    if _wanted_by_all(pool, target):
        return True
    return bearing.joining and target == made.standing.last_good


def _wanted_by_all(pool: PoolView, target: str) -> bool:
    return bool(pool.gone or pool.held or not pool.target or target == pool.target)


def _adrift(
    pool: PoolView, tally: Tally, made: Reckoning
) -> tuple[dict[str, InFlight], dict[str, str]]:
    """Nodes before the first irreversible step whose target is wanted no more, or is halted."""
    released: dict[str, str] = {}
    adrift: list[Bearing] = []
    for target, bearings in tally.unstarted.items():
        lost: list[Bearing] = []
        if not _wanted_by_all(pool, target):
            # Where a write is on the way nobody knows whether it starts on what it was granted.
            still = (one for one in bearings.values() if not one.writing)
            lost = [one for one in still if not _wanted(pool, made, one, target)]
            adrift += lost
        if why := made.standing.halted.get(target):
            stay = bearings.keys() - {one.uid for one in lost}
            released |= dict.fromkeys(stay, f"target {target} is halted: {why}")
    if not adrift:
        return {}, released
    moved, refused = _move(pool, tally, made, sorted(adrift, key=_turn))
    return moved, released | refused


def _move(
    pool: PoolView, tally: Tally, made: Reckoning, adrift: Iterable[Bearing]
) -> tuple[dict[str, InFlight], dict[str, str]]:
    """To the target that is wanted now as far as harm admits it, and the rest released."""
    moved: dict[str, InFlight] = {}
    refused: dict[str, str] = {}
    record = made.record(pool, pool.target, tally.present)
    counted = tally.flying[pool.target].union(record.failed)
    for bearing in adrift:
        entry = bearing.entry
        if entry is None:
            continue
        grows = not entry.outside and bearing.uid not in counted
        over = len(counted) + grows > harm.allowance(record)
        if harm.halted(record) or (over and not (record.proven or entry.outside)):
            why = record.halted_because or "all its places are taken while it proves itself"
            refused[bearing.uid] = f"the policy wants {pool.target} now: {why}"
            continue
        moved[bearing.uid] = replace(entry, target=pool.target)
        if grows:
            counted.add(bearing.uid)
    return moved, refused


def _held_back(
    tally: Tally, made: Reckoning, now: Instant, dropped: frozenset[str]
) -> frozenset[str]:
    """Of those that were granted: whose cordon does not fit any more, or cannot be judged."""
    waiting = [one for uid, one in tally.pending.items() if uid not in dropped]
    held = {one.uid for one in waiting if not one.ready}
    costly = [one for one in waiting if one.ready and costs(one)]
    if costly and stale(now):
        return frozenset(held.union(one.uid for one in costly))
    on_the_way = [one for one in costly if one.writing or one.unsure]
    free = made.limit - len(tally.unavailable) - len(on_the_way)
    rest = sorted((one for one in costly if not (one.writing or one.unsure)), key=_turn)
    again = [one for one in on_the_way if one.unsure] if free < 0 else []
    return frozenset(held.union(one.uid for one in (*again, *rest[max(0, free) :])))


def costs(bearing: Bearing) -> bool:
    """Whether beginning makes an available node unavailable."""
    validates = bearing.entry is not None and bearing.entry.validates
    return not (bearing.unavailable or bearing.bare or validates)


def _turn(bearing: Bearing) -> tuple[float, str]:
    return (0.0 if bearing.entry is None else bearing.entry.since, bearing.name)
