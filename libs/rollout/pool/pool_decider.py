"""The state of one pool between decisions."""

from collections.abc import Container, Mapping
from itertools import compress
from operator import is_not
from typing import NamedTuple

from msgspec.structs import replace

from libs.contracts.node import WaitCode
from libs.contracts.rollout import Brake, InFlight, RolloutStatus
from libs.rollout.decision import BudgetUsage, WriteRollout
from libs.rollout.limits import Freshness, stale_source
from libs.rollout.pool.allocation import Allocation, allocate
from libs.rollout.pool.contribution import EntryResult, NodeContribution
from libs.rollout.pool.evaluation import EMPTY_STATUS, PoolEvaluation, evaluate_pool
from libs.rollout.pool.queues import CandidateQueues
from libs.rollout.pool.status import is_open, is_worth_writing, rollout_status
from libs.rollout.pool.tally import PoolTally
from libs.rollout.step import NodePhase, rollout_counts
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class InFlightChanges(NamedTuple):
    """Uids whose part of a pool's Rollout changed."""

    removed: set[str]
    added: set[str]
    changed: set[str]
    """Another entry, or a change in the failures."""


class PoolDecider:
    def __init__(self, view: PoolView) -> None:
        self.view = view
        self.tally = PoolTally()
        self.queues = CandidateQueues()
        self.names: set[str] = set()
        """Nodes that are governed by this pool."""
        self.phase_counts: dict[NodePhase, int] = dict.fromkeys(NodePhase, 0)
        self._evaluation: PoolEvaluation | None = None
        self.constrained_view = view
        """The pool with its constraints: the input of its nodes' steps."""
        self.grant = Allocation()
        self.write: WriteRollout | None = None
        self.account = BudgetUsage(limit=0, base=0, unavailable={}, parallel=0, parallel_limit=None)
        self.dirty = True
        self.maybe_gone: set[str] = set()
        """Uids in flight whose nodes may be gone."""
        self._strays: set[str] = set()
        """Uids that count here though their Node is gone."""
        self.rules_changed = False
        """The last view changed more than the Rollout: step all governed nodes again."""
        self.as_only_pool = (self,)
        """For nodes that count here only."""
        self.in_flight: Mapping[str, InFlight] = {}
        self._load_rollout(view)
        self.maybe_gone.update(self.in_flight)

    def find_strays(self, present: Container[str]) -> None:
        """End the entries of nodes that are gone."""
        for uid in self.maybe_gone:
            entry = self.in_flight.get(uid)
            if entry is not None and uid not in present:
                self._strays.add(uid)
                has_removed = NodeContribution(
                    name=entry.node, uid=uid, present=False, ending=EntryResult.REMOVED
                )
                self.tally.put(has_removed)
            elif uid in self._strays:
                self.drop(uid)
        self.maybe_gone = set()

    def put(self, contribution: NodeContribution) -> None:
        self._strays.discard(contribution.uid)
        self.tally.put(contribution)
        self.dirty = True

    def drop(self, uid: str) -> None:
        self._strays.discard(uid)
        self.tally.drop(uid)
        self.dirty = True

    @property
    def stored(self) -> RolloutStatus | None:
        return None if self.view.rollout is None else self.view.rollout.status

    @property
    def evaluation(self) -> PoolEvaluation:
        if self._evaluation is None:
            raise LookupError(f"pool {self.view.key} was never evaluated")
        return self._evaluation

    @property
    def has_pending(self) -> bool:
        """Whether a decision is not in effect yet."""
        return bool(self.grant.waits or self.grant.preflight_steps or self.write)

    def update_view(self, view: PoolView) -> InFlightChanges:
        """Replace the view; return whose part of the Rollout changed."""
        previous, old = self.view, self.stored
        self.view, self.dirty = view, True
        self._load_rollout(view)
        self.rules_changed = replace(previous, rollout=None) != replace(view, rollout=None)
        changed = _changed(old or EMPTY_STATUS, self.stored or EMPTY_STATUS)
        self.maybe_gone |= changed.removed | changed.added | changed.changed
        return changed

    def _load_rollout(self, view: PoolView) -> None:
        stored = EMPTY_STATUS if view.rollout is None else view.rollout.status
        self.tally.load_failures(stored)
        self.in_flight = stored.in_flight

    def evaluate(self, now: Instant, *, leading: bool) -> set[str] | None:
        """Evaluate; return uids of nodes that are affected; None: all."""
        before = self._evaluation
        leads = leading and self.view.rollout is not None
        evaluation = evaluate_pool(self.view, self.tally, now, leading=leads, before=before)
        self._evaluation = evaluation
        self.constrained_view = replace(self.view, constraints=evaluation.constraints)
        return None if before is None else _affected(before, evaluation)

    def allocate(
        self,
        nodes: Mapping[str, NodeView],
        before: Mapping[str, WaitCode],
        fresh: Freshness,
        now: Instant,
    ) -> Allocation:
        """Grant starts, and derive the write of the Rollout."""
        evaluation = self.evaluation
        self.grant = allocate(
            self.view,
            self.tally,
            evaluation,
            self.queues,
            nodes=nodes,
            before=before,
            fresh=fresh,
            now=now,
        )
        self.write = self._write(evaluation, now)
        self.account = BudgetUsage(
            limit=evaluation.limit,
            base=evaluation.base or self.tally.present,
            unavailable=dict(self.tally.unavailable),
            parallel=len(self.tally.parallel),
            parallel_limit=self.view.upgrade.max_parallel_upgrades or None,
        )
        return self.grant

    def epoch_write(self, epoch: int) -> WriteRollout | None:
        """Write the new leader's epoch before anything else; None: it is there, or on its way."""
        rollout = self.view.rollout
        if rollout is None or rollout.write_pending or rollout.status.epoch >= epoch:
            return None
        return WriteRollout(
            pool=self.view.key,
            uid=rollout.uid,
            revision=rollout.revision,
            status=replace(rollout.status, epoch=epoch),
            has_finalizer=rollout.has_finalizer,
            because=f"new leader: epoch {epoch}",
        )

    def _write(self, evaluation: PoolEvaluation, now: Instant) -> WriteRollout | None:
        """Write the Rollout; create it paused if nodes show that an earlier one was lost."""
        view, rollout = self.view, self.view.rollout
        if rollout is None and (view.gone or stale_source(now)):
            return None
        if rollout is not None and (rollout.write_pending or not evaluation.constraints.leading):
            return None
        status = rollout_status(
            view,
            self.tally,
            evaluation,
            granted={} if rollout is None else self.grant.entries,
            counts=rollout_counts(self.phase_counts),
            now=now,
        )
        needs_finalizer = is_open(view, status)
        if rollout is None:
            was_lost = self.tally.managed_count > 0
            return WriteRollout(
                pool=view.key,
                status=status,
                brake=Brake.PAUSE if was_lost else None,
                has_finalizer=needs_finalizer,
                because="the Rollout was lost: rebuilt from the Nodes"
                if was_lost
                else "the pool has no Rollout yet",
            )
        is_current = not is_worth_writing(status, rollout.status)
        if is_current and needs_finalizer == rollout.has_finalizer:
            return None
        return WriteRollout(
            pool=view.key,
            uid=rollout.uid,
            revision=rollout.revision,
            status=status,
            has_finalizer=needs_finalizer,
            granted=tuple(self.grant.names),
            because=_because(rollout.status, status, len(self.grant.names)),
        )


def _changed(old: RolloutStatus, new: RolloutStatus) -> InFlightChanges:
    previous, current = old.in_flight, new.in_flight
    if previous is current:
        return InFlightChanges(set(), set(), _failed_otherwise(old, new))
    # Most entries are identical objects: compare those by identity only.
    different = set(compress(current, map(is_not, map(previous.get, current), current.values())))
    added = different.difference(previous)
    has_removed = len(previous) + len(added) - len(current)
    removed = set(previous).difference(current) if has_removed else set[str]()
    changed = {uid for uid in different - added if previous[uid] != current[uid]}
    return InFlightChanges(removed, added, changed | _failed_otherwise(old, new))


def _failed_otherwise(old: RolloutStatus, new: RolloutStatus) -> set[str]:
    uids = set[str]()
    before, after = old.targets, new.targets
    for target in before.keys() | after.keys():
        failed = before[target].failed if target in before else ()
        failed_now = after[target].failed if target in after else ()
        if failed != failed_now:
            uids.update(set(failed).symmetric_difference(failed_now))
    return uids


def _affected(before: PoolEvaluation, evaluation: PoolEvaluation) -> set[str] | None:
    old, new = before.constraints, evaluation.constraints
    if (
        old.leading != new.leading
        or old.may_mark_required != new.may_mark_required
        or old.paused != new.paused
        or old.frozen != new.frozen
        or old.halted != new.halted
        or old.proven != new.proven
        or old.last_good != new.last_good
    ):
        return None
    uids = set[str]()
    if before.held_back != evaluation.held_back:
        uids |= before.held_back ^ evaluation.held_back
    if old.to_release != new.to_release:
        uids |= old.to_release.keys() | new.to_release.keys()
    uids |= before.retargeted.keys() ^ evaluation.retargeted.keys()
    return uids | (before.withdrawn ^ evaluation.withdrawn)


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
