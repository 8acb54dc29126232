"""The state of one pool between decisions."""

from collections.abc import Container, Mapping
from itertools import compress
from operator import is_not
from typing import NamedTuple

from msgspec.structs import replace

from libs.contracts.rollout import Counts, InFlight, RolloutStatus
from libs.contracts.waits import WaitCode, ends_by_itself
from libs.rollout.decision import BudgetUsage, Wait, WriteRollout
from libs.rollout.limits import Freshness
from libs.rollout.pool.allocation import Allocation, allocate
from libs.rollout.pool.contribution import EntryResult, NodeContribution
from libs.rollout.pool.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.pool.queues import CandidateQueues
from libs.rollout.pool.status import rollout_write
from libs.rollout.pool.tally import PoolTally
from libs.rollout.step import NodePhase
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolConstraints, PoolView


class InFlightChanges(NamedTuple):
    """Uids of the nodes with changed entries or failures in the Rollout of a pool."""

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
        self.held_up: set[str] = set()
        """Nodes with a wait that people have to end, so that its end is not known."""
        self._phase_counts: dict[NodePhase, int] = dict.fromkeys(NodePhase, 0)
        self._waiting: set[str] = set()
        """Names of the nodes in the phase WAITING."""
        self._evaluation: PoolEvaluation | None = None
        self.constrained_view = view
        """The pool with its constraints: the input of its nodes' steps."""
        self.allocation = Allocation()
        self.write: WriteRollout | None = None
        self.budget_usage = BudgetUsage(
            limit=0, base=0, unavailable={}, parallel=0, parallel_limit=None
        )
        self.dirty = True
        self.maybe_gone: set[str] = set()
        """Uids in flight of nodes that may be gone."""
        self._strays: set[str] = set()
        """Uids that still count in this pool although their Node is gone."""
        self.harmless: set[str] = set()
        """Uids in flight of nodes that had not started, or had ended well, when last seen."""
        self._left: set[str] = set()
        """Uids that may be neither in flight any more nor in the tally."""
        self.rules_changed = False
        """The last view changed more than the Rollout: step all governed nodes again."""
        self.as_single_pool = (self,)
        """Shared by all nodes that count in this pool only."""
        self.in_flight: Mapping[str, InFlight] = {}
        self._load_rollout()
        self.maybe_gone.update(self.in_flight)

    def remember(self, harmless: frozenset[str]) -> None:
        """Take over what another leader remembers."""
        self.harmless |= harmless
        self._left |= harmless

    def put(self, contribution: NodeContribution) -> None:
        self._strays.discard(contribution.uid)
        self.harmless.discard(contribution.uid)
        if _is_harmless(contribution):
            self.harmless.add(contribution.uid)
        self.tally.put(contribution)
        self.dirty = True

    def drop(self, uid: str) -> None:
        self._strays.discard(uid)
        self._left.add(uid)
        self.tally.drop(uid)
        self.dirty = True

    def put_phase(self, name: str, phase: NodePhase) -> None:
        self._phase_counts[phase] += 1
        if phase is NodePhase.WAITING:
            self._waiting.add(name)
        self.dirty = True

    def drop_phase(self, name: str, phase: NodePhase) -> None:
        self._phase_counts[phase] -= 1
        self._waiting.discard(name)
        self.dirty = True

    def put_wait(self, name: str, wait: Wait | None) -> None:
        """Keep whether people have to end the wait of a node, which has no place in a queue."""
        if wait is None or ends_by_itself(wait.who):
            self.held_up.discard(name)
        else:
            self.held_up.add(name)

    @property
    def evaluation(self) -> PoolEvaluation:
        if self._evaluation is None:
            raise LookupError(f"pool {self.view.key} was never evaluated")
        return self._evaluation

    def update_view(self, view: PoolView) -> InFlightChanges:
        """Replace the view; return the nodes with a changed part of the Rollout."""
        previous, self.view, self.dirty = self.view, view, True
        self._load_rollout()
        self.rules_changed = replace(previous, rollout=None) != replace(view, rollout=None)
        changed = _changed(previous.rollout_status, view.rollout_status)
        self.maybe_gone |= changed.removed | changed.added | changed.changed
        self._left |= changed.removed
        return changed

    def _load_rollout(self) -> None:
        stored = self.view.rollout_status
        self.tally.load_failures(stored)
        self.in_flight = stored.in_flight

    def evaluate(self, present: Container[str], now: Instant, *, leading: bool) -> set[str] | None:
        """Evaluate the pool if anything changed; return uids of affected nodes; None: all."""
        self._find_strays(present)
        is_pending = self.allocation.waits or self.allocation.preflight_steps or self.write
        self.dirty = self.dirty or bool(is_pending)
        if not self.dirty:
            return set()
        before = self._evaluation
        leads = leading and self.view.rollout is not None
        evaluation = evaluate_pool(self.view, self.tally, now, leading=leads, before=before)
        self._evaluation = evaluation
        self.constrained_view = replace(self.view, constraints=evaluation.constraints)
        return None if before is None else _affected(before, evaluation)

    def _find_strays(self, present: Container[str]) -> None:
        """End the entries of nodes that are gone.

        One that a leader has never seen may have started: that is not known to be harmless.
        """
        for uid in self._left:
            if uid not in self.in_flight and uid not in self.tally.contributions:
                self.harmless.discard(uid)
        self._left = set()
        for uid in self.maybe_gone:
            entry = self.in_flight.get(uid)
            if entry is not None and uid not in present:
                self._strays.add(uid)
                is_counted = entry.target and not (entry.outside or entry.validates)
                may_have_started = uid not in self.harmless
                self.tally.put(
                    NodeContribution(
                        name=entry.node,
                        uid=uid,
                        present=False,
                        ending=EntryResult.REMOVED,
                        vanished=entry if is_counted and may_have_started else None,
                    )
                )
            elif uid in self._strays:
                self.drop(uid)
        self.maybe_gone = set()

    def allocate(
        self,
        nodes: Mapping[str, NodeView],
        before: Mapping[str, WaitCode],
        fresh: Freshness,
        now: Instant,
    ) -> set[str]:
        """Grant starts and derive the write of the Rollout.

        Return the names of nodes with a possibly changed wait.
        """
        names = set(self.allocation.preflight_steps)
        evaluation, tally = self.evaluation, self.tally
        self.allocation = allocate(
            self.view,
            tally,
            evaluation,
            self.queues,
            nodes=nodes,
            before=before,
            fresh=fresh,
            now=now,
        )
        self.write = rollout_write(
            self.view,
            tally,
            evaluation,
            self.allocation,
            counts=self._counts(),
            held_up=self.held_up,
            now=now,
        )
        self.budget_usage = BudgetUsage(
            limit=evaluation.limit,
            base=evaluation.base or tally.present,
            unavailable=dict(tally.unavailable),
            parallel=len(tally.parallel),
            parallel_limit=self.view.upgrade.max_parallel_upgrades or None,
        )
        self.dirty = False
        return names.union(self.allocation.preflight_steps, self.allocation.requeued)

    def _counts(self) -> Counts:
        phases = self._phase_counts
        withdrawn = self.evaluation.withdrawn
        pending = (each.name for uid, each in self.tally.pending.items() if uid not in withdrawn)
        starting = self._waiting.intersection((*pending, *self.allocation.names))
        # What is written at a start holds until the next: nodes that begin by then count already.
        unavailable = self.tally.unavailable
        beginning = sum(name not in unavailable for name in self.allocation.beginning)
        return Counts(
            total=sum(phases.values()),
            done=phases[NodePhase.DONE],
            failed=phases[NodePhase.FAILED],
            skipped=phases[NodePhase.SKIPPED],
            excluded=phases[NodePhase.EXCLUDED],
            waiting=len(self._waiting) - len(starting),
            unavailable=len(unavailable) + beginning,
        )

    def epoch_write(self, epoch: int) -> WriteRollout | None:
        """Return the write of a new leader's epoch; None: it is written, or being written."""
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


def _is_harmless(contribution: NodeContribution) -> bool:
    """Whether nothing speaks against the target if the Node is deleted now."""
    if contribution.entry is not None:
        return not (contribution.started or contribution.is_in_doubt)
    return contribution.ending is not None and contribution.ending is not EntryResult.FAILED


def _changed(old: RolloutStatus, new: RolloutStatus) -> InFlightChanges:
    previous, current = old.in_flight, new.in_flight
    if previous is current:
        return InFlightChanges(set(), set(), _changed_failures(old, new))
    # Most entries are identical objects: compare those by identity only.
    different = set(compress(current, map(is_not, map(previous.get, current), current.values())))
    added = different.difference(previous)
    has_removed = len(previous) + len(added) - len(current)
    removed = set(previous).difference(current) if has_removed else set[str]()
    changed = {uid for uid in different - added if previous[uid] != current[uid]}
    return InFlightChanges(removed, added, changed | _changed_failures(old, new))


def _changed_failures(old: RolloutStatus, new: RolloutStatus) -> set[str]:
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
    if _rules(old) != _rules(new):
        return None
    uids = set[str]()
    if before.held_back != evaluation.held_back:
        uids |= before.held_back ^ evaluation.held_back
    if old.to_release != new.to_release:
        uids |= old.to_release.keys() | new.to_release.keys()
    uids |= before.retargeted.keys() ^ evaluation.retargeted.keys()
    return uids | (before.withdrawn ^ evaluation.withdrawn)


def _rules(constraints: PoolConstraints) -> tuple[object, ...]:
    """Return the constraints that apply to every node."""
    return (
        constraints.leading,
        constraints.may_mark_required,
        constraints.paused,
        constraints.frozen,
        constraints.halted,
        constraints.proven,
        constraints.last_good,
    )
