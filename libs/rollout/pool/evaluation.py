"""The evaluation of a pool at one moment, from its Rollout and the sets of its nodes.

It has the reason why nothing starts at all, the constraints of nodes, and the withdrawn grants.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from libs.contracts.rollout import (
    IDLE_PHASES,
    Brake,
    InFlight,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.shapes import scaled_value
from libs.rollout.limits import stale_source
from libs.rollout.pool import harm
from libs.rollout.pool.conditions import Pause, PauseReason, frozen_detail, pool_pause
from libs.rollout.pool.contribution import NodeContribution
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolConstraints, PoolView
from libs.rollout.wait_reasons import BlockReason


class PoolEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    stored: RolloutStatus
    spec: RolloutSpec
    pause: Pause | None
    """Why nothing starts at all."""
    target: str
    """The target that the status names: the policy's, unless it is not to be rolled out."""
    version: str
    """The version of its driver."""
    base: int
    """0: it is set with the next grant."""
    limit: int
    records: Mapping[str, TargetRecord]
    """By target: the stored record, updated with new failures and validations."""
    retargeted: Mapping[str, InFlight]
    """By uid: entries not begun irreversibly that move to the new target."""
    withdrawn: frozenset[str]
    """Uids of entries that are removed although their nodes could still begin."""
    kept: frozenset[str] = frozenset()
    """Uids of entries that would be withdrawn, but an unanswered write may still begin the node."""
    held_back: frozenset[str] = frozenset()
    """Uids that must not begin now."""
    constraints: PoolConstraints

    @property
    def blocked_by(self) -> BlockReason | None:
        return None if self.pause is None else self.pause.block

    def block_of(self, *, by_hand: bool) -> BlockReason | None:
        """Return why such a node does not start, whatever the limits allow."""
        is_off = self.pause is not None and self.pause.reason is PauseReason.AUTO_UPGRADE_OFF
        return None if by_hand and is_off else self.blocked_by

    def record(self, pool: PoolView, target: str, present: int) -> TargetRecord:
        """Return the record of a target; a new one as its first grant would create it."""
        known = self.records.get(target)
        base = self.base or present
        return known or harm.new_record(pool.strategy, self.spec, target, base=base)


def evaluate_pool(
    pool: PoolView,
    tally: PoolTally,
    now: Instant,
    *,
    leading: bool,
    before: PoolEvaluation | None = None,
) -> PoolEvaluation:
    """Evaluate the pool; `before` allows to reuse sets that did not change."""
    stored, spec = pool.rollout_status, pool.rollout_spec
    base = 0 if stored.phase in IDLE_PHASES else stored.base
    counted = len(tally.contributions)
    limit = unavailable_limit(pool.upgrade, base=base, present=tally.present, counted=counted)
    records = _records(pool, spec, tally, base or tally.present, now)
    halted = {
        target: record.halted_because for target, record in records.items() if record.halted_because
    }
    pause = pool_pause(pool, tally, now)
    is_enabled = was_enabled(pool)
    is_used = is_enabled or tally.managed_count > 0
    is_wanted = is_used and pool.target and not (pool.gone or pool.errors)
    frozen = spec.brake is Brake.FREEZE or stored.frozen_since is not None
    evaluation = PoolEvaluation(
        stored=stored,
        spec=spec,
        pause=pause,
        target=pool.target if is_wanted else stored.target,
        version=pool.version if is_wanted else stored.version,
        base=base,
        limit=limit,
        records=records,
        retargeted={},
        withdrawn=frozenset(),
        constraints=PoolConstraints(
            leading=leading,
            may_mark_required=is_enabled
            and not (pool.gone or pool.errors or now.visibility.foreign_operator),
            paused="" if pause is None else pause.block.detail,
            frozen=frozen_detail(pool) if frozen else "",
            frozen_seconds=_frozen_seconds(stored, now.at),
            in_flight=stored.in_flight,
            halted=halted,
            proven=frozenset(
                key for key, record in records.items() if record.proven and key not in halted
            ),
            last_good=harm.last_good(records),
        ),
    )
    return evaluation if frozen else _withdraw_grants(pool, tally, evaluation, now, before)


def _records(
    pool: PoolView, spec: RolloutSpec, tally: PoolTally, base: int, now: Instant
) -> dict[str, TargetRecord]:
    """Return the stored records and those of new targets, with new failures and validations."""
    known = dict(pool.rollout_status.targets)
    for sets in (tally.failed, tally.validated, tally.in_flight, tally.vanished):
        for target, uids in sets.items():
            if uids and target not in known:
                known[target] = harm.new_record(pool.strategy, spec, target, base=base)
    return {
        target: harm.updated_record(
            record,
            spec,
            target,
            failed=tally.failed.get(target, ()),
            validated=tally.validated.get(target, ()),
            vanished=tally.vanished.get(target, {}),
            now=now.at,
        )
        for target, record in known.items()
    }


def _frozen_seconds(stored: RolloutStatus, now: float) -> float:
    since = stored.frozen_since
    return stored.frozen_seconds + (0.0 if since is None else max(0.0, now - since))


def _withdraw_grants(
    pool: PoolView,
    tally: PoolTally,
    evaluation: PoolEvaluation,
    now: Instant,
    before: PoolEvaluation | None,
) -> PoolEvaluation:
    """Withdraw, retarget or hold back grants that are no longer justified."""
    retargeted, released = _retarget_or_release(pool, tally, evaluation)
    revoked = [node for node in tally.pending.values() if _must_not_begin(pool, evaluation, node)]
    kept = frozenset(node.uid for node in revoked if node.unconfirmed_until is not None)
    withdrawn = frozenset(node.uid for node in revoked) - kept
    ended = withdrawn.union(tally.endings)
    held_back = ended | kept | _held_back(tally, evaluation, now, withdrawn)
    stored = evaluation.stored.in_flight
    if before is not None and before.stored.in_flight is stored and before.held_back == held_back:
        may_begin = before.constraints.may_begin
    else:
        may_begin = frozenset(stored) - held_back
    in_flight = stored
    if ended:
        remaining = dict(stored)
        for uid in ended:
            remaining.pop(uid, None)
        in_flight = remaining
    return replace(
        evaluation,
        retargeted=retargeted,
        withdrawn=withdrawn,
        kept=kept,
        held_back=held_back,
        constraints=replace(
            evaluation.constraints, to_release=released, may_begin=may_begin, in_flight=in_flight
        ),
    )


def _must_not_begin(pool: PoolView, evaluation: PoolEvaluation, node: NodeContribution) -> bool:
    """Whether a granted node that has not begun must not begin any more."""
    entry = node.entry
    if node.write_pending:
        return False  # its first write is on the way
    if evaluation.block_of(by_hand=node.by_hand) is not None:
        return True
    if entry is None or entry.validates or not entry.target:
        return False
    is_halted = entry.target in evaluation.constraints.halted
    return is_halted or not _wanted(pool, evaluation, node, entry.target)


def _wanted(
    pool: PoolView, evaluation: PoolEvaluation, node: NodeContribution, target: str
) -> bool:
    """Whether the node should still get the target it was granted for."""
    is_last_good = target == evaluation.constraints.last_good
    return _wanted_by_all(pool, target) or (node.joining and is_last_good)


def _wanted_by_all(pool: PoolView, target: str) -> bool:
    return bool(pool.gone or pool.errors or not pool.target or target == pool.target)


def _retarget_or_release(
    pool: PoolView, tally: PoolTally, evaluation: PoolEvaluation
) -> tuple[dict[str, InFlight], dict[str, str]]:
    """Return nodes before the start that are retargeted or released: target unwanted or halted."""
    released: dict[str, str] = {}
    unwanted: dict[str, NodeContribution] = {}
    for target, nodes in tally.unstarted.items():
        if not _wanted_by_all(pool, target):
            unwanted |= {
                uid: node
                for uid, node in nodes.items()
                # A pending write may already start the node on its granted target.
                if not node.write_pending and not _wanted(pool, evaluation, node, target)
            }
        if reason := evaluation.constraints.halted.get(target):
            staying = nodes.keys() - unwanted.keys()
            released |= dict.fromkeys(staying, f"target {target} is halted: {reason}")
    if not unwanted:
        return {}, released
    in_order = sorted(unwanted.values(), key=_grant_order)
    retargeted, refused = _retarget(pool, tally, evaluation, in_order)
    return retargeted, released | refused


def _retarget(
    pool: PoolView,
    tally: PoolTally,
    evaluation: PoolEvaluation,
    unwanted: Iterable[NodeContribution],
) -> tuple[dict[str, InFlight], dict[str, str]]:
    """Retarget nodes as far as bounded harm admits, and release the rest."""
    retargeted: dict[str, InFlight] = {}
    refused: dict[str, str] = {}
    record = evaluation.record(pool, pool.target, tally.present)
    counted = tally.in_flight[pool.target].union(record.harmed)
    for node in unwanted:
        entry = node.entry
        if entry is None:
            continue
        adds = not entry.outside and node.uid not in counted
        exceeds = len(counted) + adds > harm.allowance(record)
        if harm.is_halted(record) or (exceeds and not (record.proven or entry.outside)):
            reason = "may not start on more nodes until it is proven"
            if record.halted_because:
                reason = f"is halted: {record.halted_because}"
            refused[node.uid] = f"the policy now wants target {pool.target}, which {reason}"
            continue
        retargeted[node.uid] = replace(entry, target=pool.target)
        if adds:
            counted.add(node.uid)
    return retargeted, refused


def _held_back(
    tally: PoolTally, evaluation: PoolEvaluation, now: Instant, withdrawn: frozenset[str]
) -> frozenset[str]:
    """Return granted nodes that no longer fit into the budget, or cannot be judged now."""
    waiting = [node for uid, node in tally.pending.items() if uid not in withdrawn]
    held_back = [node for node in waiting if not node.ready]
    lowering = [node for node in waiting if node.ready and node.lowers_capacity]
    if lowering and stale_source(now):
        return frozenset(node.uid for node in (*held_back, *lowering))
    in_doubt = [node for node in lowering if node.is_in_doubt]
    rest = [node for node in lowering if not node.is_in_doubt]
    free = evaluation.limit - len(tally.unavailable) - len(in_doubt)
    held_back += sorted(rest, key=_grant_order)[max(0, free) :]
    if free < 0:
        held_back += [node for node in in_doubt if node.unconfirmed_until is not None]
    return frozenset(node.uid for node in held_back)


def _grant_order(node: NodeContribution) -> tuple[float, str]:
    return (0.0 if node.entry is None else node.entry.since, node.name)


def unavailable_limit(upgrade: UpgradePolicy, *, base: int, present: int, counted: int) -> int:
    """Return how many nodes may be unavailable; 100 % includes those that are leaving the pool."""
    maximum = upgrade.max_unavailable
    if scaled_value(maximum, 100) == 0:
        return 0
    if isinstance(maximum, str) and "%" in maximum and scaled_value(maximum, 100) >= 100:
        return max(1, counted)
    return max(1, scaled_value(maximum, min(base, present) if base else present))


def was_enabled(pool: PoolView) -> bool:
    """Whether the policy ever upgraded a node: only then are others marked."""
    return pool.upgrade.auto_upgrade or bool(pool.rollout and pool.rollout.status.target)
