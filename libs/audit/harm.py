"""I8: the rollout of a bad driver stops after the chosen number of nodes.

The counts follow from the changes of Nodes and not from the status of a Rollout, except for the
counts at the start of the journal.
"""

from collections.abc import Iterator, Mapping

from libs.audit.case import (
    ROUND_SECONDS,
    STALE_SECONDS,
    AuditCase,
    AuditFinding,
    MissingSource,
    write_violation,
)
from libs.audit.forgotten import forgotten_harm, rollout_violation
from libs.audit.harm_counts import AT_REST, TargetCounts, UpgradeHistory, target_of
from libs.audit.nodes import ReplayedNode
from libs.audit.object_writes import RolloutWrite
from libs.audit.pools import in_journal_order
from libs.audit.timeline import NodeChange
from libs.contracts.node import Operation, UpgradeState
from libs.policy.shapes import scaled_value


def harm(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each grant and each start of a node."""
    return _HarmReplay(case).findings()


class _HarmReplay:
    def __init__(self, case: AuditCase) -> None:
        self._case = case
        self._counts: dict[tuple[str, str], TargetCounts | None] = {}
        """By pool and target; None where the failure threshold is unknown."""
        self._nodes: dict[str, UpgradeHistory] = {}
        self._releases: dict[str, tuple[str, int]] = {}
        """By pool: the released target, and the failures accepted on it."""
        self._targets: dict[str, frozenset[str]] = {}
        """By pool: the targets in the status of its Rollout."""
        self._lost_rollouts: set[str] = set()
        """Pools with a deleted Rollout."""
        self._proven_until: dict[tuple[str, str], int] = {}
        """By pool and target: the position at which a Rollout that had proven the target was lost.
        Nodes granted before may still start."""
        self._future_facts = sorted(case.journal.pools, key=lambda item: item.since, reverse=True)
        self._accepted: dict[str, Mapping[str, int]] = {}
        """By pool and target: the failures accepted by the facts."""

    def findings(self) -> Iterator[AuditFinding]:
        timeline = self._case.timeline
        for uid, history in timeline.nodes.items():
            if (first := history.at(-1)).exists:
                self._nodes[uid] = UpgradeHistory.at_start(first)
        for item in timeline.object_changes:
            if isinstance(item, RolloutWrite) and item.position < 0:
                yield from self._replay_rollout(item)
        self._count_initial_nodes()
        for item in in_journal_order(timeline):
            self._apply_facts(timeline.time_of(item.position))
            if isinstance(item, NodeChange):
                yield from self._replay_node(item)
            elif isinstance(item, RolloutWrite) and item.position >= 0:
                yield from self._replay_rollout(item)
        for (pool, target), counts in self._counts.items():
            if counts is None:
                source = f"the failureThreshold of pool {pool} when target {target} began"
                yield MissingSource(invariant="I8", source=source)

    def _count_initial_nodes(self) -> None:
        """Count the nodes in flight at the start of the journal."""
        timeline = self._case.timeline
        time = timeline.time_of(0) if timeline.revisions else 0.0
        self._apply_facts(time)
        for uid, history in self._nodes.items():
            node = timeline.nodes[uid].at(-1)
            if target := target_of(node):
                history.counts = self._counts_of(node.pool, target, -1)
                if history.counts:
                    history.counts.in_flight.add(uid)

    def _apply_facts(self, until: float) -> None:
        while self._future_facts and self._future_facts[-1].since <= until:
            facts = self._future_facts.pop()
            self._accepted[facts.key] = facts.accepted
            self._accept_failures(facts.key, facts.since)

    def _accept_failures(self, pool: str, time: float) -> None:
        for (key, target), counts in self._counts.items():
            if counts and key == pool:
                counts.accept_failures(self._accepted_failures(pool, target), time)

    def _accepted_failures(self, pool: str, target: str) -> int:
        released, failures = self._releases.get(pool, ("", 0))
        default = failures if released == target else 0
        return self._accepted.get(pool, {}).get(target, default)

    def _replay_rollout(self, write: RolloutWrite) -> Iterator[AuditFinding]:
        pool = write.pool
        self._releases[pool] = write.release
        self._accept_failures(pool, write.time)
        for target, record in write.initial_records.items():
            counts = self._new_counts(pool, target, record.threshold)
            counts.failed = dict.fromkeys(record.failed, -1)
            counts.vanished = dict.fromkeys(record.vanished, -1)
            counts.validated = set(record.validated)
            self._counts[pool, target] = counts
        for target in write.vanished:
            if counts := self._counts.get((pool, target)):
                counts.names_vanished = True
        for target in write.completed:
            if counts := self._counts.get((pool, target)):
                counts.complete()
        yield from forgotten_harm(write)
        for target in sorted(self._targets.get(pool, frozenset()) - write.targets):
            yield from self._drop_target(write, target)
        if write.exists and pool in self._lost_rollouts:
            self._lost_rollouts.discard(pool)
            self._restore_counts(write)
        elif not write.exists:
            self._lost_rollouts.add(pool)
        self._targets[pool] = write.targets

    def _drop_target(self, write: RolloutWrite, target: str) -> Iterator[AuditFinding]:
        """Check that a target is only dropped once it is proven and complete."""
        counts = self._counts.get((write.pool, target))
        if counts is None:
            return
        if counts.is_proven and not counts.is_halted:
            if not write.exists:
                self._proven_until[write.pool, target] = write.position
            if counts.in_flight:
                counts.validated.clear()  # the Rollout was lost: nodes in flight prove it again
            else:
                del self._counts[write.pool, target]
        elif counts.harmed:
            nodes = f"{len(counts.harmed)} nodes {counts.harm}"
            yield from rollout_violation(write, f"dropped target {target}, on which {nodes}")

    def _restore_counts(self, write: RolloutWrite) -> None:
        """Restore the counts of a pool after the loss of its Rollout.

        Only the failures that Nodes still show are known. The threshold of a target grows with
        the pool.
        """
        nodes = self._case.timeline.nodes
        threshold = self._threshold(write.pool, write.position)
        for (pool, target), counts in self._counts.items():
            if counts is None or pool != write.pool:
                continue
            counts.failed = {
                uid: position
                for uid, position in counts.failed.items()
                if _failed_on(nodes[uid].at(write.position), target)
            }
            counts.vanished.clear()
            if threshold and target in write.targets:
                counts.threshold = max(counts.threshold, threshold)

    def _replay_node(self, change: NodeChange) -> Iterator[AuditFinding]:
        uid = change.node.uid
        history = self._nodes.setdefault(uid, UpgradeHistory())
        if change.by_scheduler:
            self._record_result(change, history)
        elif history.counts and history.is_abandoned(change):
            # The result is unknown: the node counts as failed, and outside the counts from now on.
            history.failed_on = history.failed_on or history.counts.target
            history.proven_label = ""
        target = target_of(change.after)
        pool = change.after.pool if target else ""
        if history.counts and (history.counts.pool, history.counts.target) != (pool, target):
            vanished = not change.after.exists and history.has_started(change.before)
            history.counts.remove(uid, vanished_at=change.position if vanished else None)
            history.counts = None
        if not target:
            return
        if history.counts is None:
            history.counts = self._counts_of(pool, target, change.position)
            if history.counts is None:
                return
            yield from self._check_grant(change, history, history.counts)
        if change.by_scheduler and history.is_start(change):
            yield from self._check_start(change, history, history.counts)

    def _record_result(self, change: NodeChange, history: UpgradeHistory) -> None:
        """Record the result of an operation that a write of ours shows."""
        before, after, uid = change.before, change.after, change.node.uid
        counts = history.counts
        if after.failed and after.record and after.record.unbegun:
            history.proven_label = ""
        elif after.failed and before.record and counts:
            if history.started == before.record.token and history.failed_on in ("", counts.target):
                counts.failed.setdefault(uid, change.position)
            history.failed_on = history.failed_on or counts.target
            history.proven_label = ""
        elif after.failed and before.operation in (Operation.VALIDATE, Operation.MIG):
            history.failed_on = history.failed_on or AT_REST
        evidence = after.record.evidence if after.record else None
        done = change.lease_ended and after.state == UpgradeState.UPGRADE_DONE
        if done and evidence and evidence.passed:
            history.failed_on, history.proven_label = "", after.driver
            if counts:
                counts.validate(uid)

    def _check_grant(
        self, change: NodeChange, history: UpgradeHistory, counts: TargetCounts
    ) -> Iterator[AuditFinding]:
        uid, record = change.node.uid, change.after.record
        action = f"{change.node.name} was granted for target {counts.target} of pool {counts.pool}"
        if history.failed_on not in ("", counts.target) and record and record.outside:
            counts.in_flight_uncounted.add(uid)
            if change.by_scheduler and len(counts.in_flight_uncounted) > 1:
                message = f"{action} while another node that had failed before was in flight"
                yield write_violation("I8", change, message)
            yield from self._check_halt(change, counts, action)
            return
        if history.failed_on != counts.target:
            history.failed_on = ""  # failed before its start, or counted nevertheless
        is_new = uid not in counts.at_risk
        counts.in_flight.add(uid)
        if record and history.is_restart(record.label):
            return
        allowance = counts.failure_allowance(change.revision.time - STALE_SECONDS)
        proven_until = self._proven_until.get((counts.pool, counts.target), -1)
        proven = counts.is_proven or self._known_position(change) < proven_until
        if change.by_scheduler and is_new and not proven and len(counts.at_risk) > allowance:
            problem = f"{allowance} nodes were in flight or had {counts.harm} already"
            yield write_violation("I8", change, f"{action}, which is unproven: {problem}")
        else:
            yield from self._check_halt(change, counts, action)

    def _check_start(
        self, change: NodeChange, history: UpgradeHistory, counts: TargetCounts
    ) -> Iterator[AuditFinding]:
        history.started = change.after.record.token if change.after.record else -1
        if history.is_restart(change.after.driver):
            return
        history.proven_label = ""
        action = f"{change.node.name} was started on target {counts.target} of pool {counts.pool}"
        yield from self._check_halt(change, counts, action)

    def _check_halt(
        self, change: NodeChange, counts: TargetCounts, action: str
    ) -> Iterator[AuditFinding]:
        since = change.revision.time - STALE_SECONDS
        if change.by_scheduler and counts.was_halted(self._known_position(change), since):
            message = f"{action}, which is halted: {len(counts.harmed)} nodes {counts.harm} on it"
            yield write_violation("I8", change, message)

    def _known_position(self, change: NodeChange) -> int:
        """Return the position of the newest write that the decision must have seen."""
        timeline, time = self._case.timeline, change.revision.time
        seen_before = change.before.record.seen if change.before.record else {}
        seen = self._case.revision_seen(change)
        if seen is None or (change.after.record and change.after.record.seen == seen_before):
            return timeline.position_at(time - ROUND_SECONDS)
        return max(timeline.position_of(seen), timeline.position_at(time - STALE_SECONDS))

    def _counts_of(self, pool: str, target: str, position: int) -> TargetCounts | None:
        if (pool, target) not in self._counts:
            threshold = self._threshold(pool, position)
            counts = None if threshold is None else self._new_counts(pool, target, threshold)
            self._counts[pool, target] = counts
        return self._counts[pool, target]

    def _new_counts(self, pool: str, target: str, threshold: int) -> TargetCounts:
        allowed = [(float("-inf"), self._accepted_failures(pool, target))]
        return TargetCounts(pool=pool, target=target, threshold=threshold, allowed=allowed)

    def _threshold(self, pool: str, position: int) -> int | None:
        """Return the highest threshold that may have held at a write; None where it is unknown."""
        availability = self._case.availability
        base = availability.base(pool, position) or availability.size(pool, position).largest
        since = self._case.timeline.position_before(position, STALE_SECONDS)
        limits = availability.limits(pool, since=since, until=position)
        shares = (scaled_value(facts.failure_threshold, facts.base or base) for facts in limits)
        return max((max(1, share) for share in shares), default=None)


def _failed_on(node: ReplayedNode, target: str) -> bool:
    record = node.record
    return record is not None and node.failed and record.target == target and not record.unbegun
