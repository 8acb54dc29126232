"""I8: a bad driver stops after as many nodes as were chosen.

The counts are kept from what happened to Nodes, never from what a Rollout says of itself; only how
a target stood when the journal began is taken from there.
"""

from collections.abc import Iterator

from libs.audit.checks.case import ROUND_SECONDS, STALE_SECONDS, AuditCase, write_violation
from libs.audit.checks.harm_counts import AT_REST, TargetCounts, UpgradeHistory, target_of
from libs.audit.findings import AuditFinding, MissingSource, Violation
from libs.audit.replay.changes import NodeChange, RolloutWrite
from libs.audit.replay.nodes import ReplayedNode
from libs.audit.replay.pool_availability import in_journal_order
from libs.contracts.node import MANAGER, Operation, UpgradeState
from libs.contracts.paths import segments
from libs.policy.int_or_string import scaled_value


def harm(case: AuditCase) -> Iterator[AuditFinding]:
    """Each grant, and each start."""
    return _Ledger(case).findings()


class _Ledger:
    def __init__(self, case: AuditCase) -> None:
        self._case = case
        self._books: dict[tuple[str, str], TargetCounts | None] = {}
        """None: nobody knows what may fail there."""
        self._nodes: dict[str, UpgradeHistory] = {}
        self._released: dict[str, tuple[str, int]] = {}
        self._known: dict[str, frozenset[str]] = {}
        """By pool: the targets of which its Rollout knows."""
        self._lost: set[str] = set()
        """Pools whose Rollout is gone."""
        self._proven_until: dict[tuple[str, str], int] = {}
        """By pool and target: where a Rollout was lost that had proven it. Who was granted before
        that may still begin."""
        self._waiting = sorted(case.journal.pools, key=lambda one: one.since, reverse=True)
        self._accepted: dict[str, dict[str, int]] = {}

    def findings(self) -> Iterator[AuditFinding]:
        timeline = self._case.timeline
        for uid, life in timeline.nodes.items():
            if (first := life.at(-1)).exists:
                self._nodes[uid] = UpgradeHistory.of(first)
        for edition in timeline.object_changes:
            if isinstance(edition, RolloutWrite) and edition.position < 0:
                yield from self._edition(edition)
        self._begin()
        for item in in_journal_order(timeline):
            self._apply_facts(timeline.time_of(item.position))
            if isinstance(item, NodeChange):
                yield from self._change(item)
            elif isinstance(item, RolloutWrite) and item.position >= 0:
                yield from self._edition(item)
        for (pool, target), book in self._books.items():
            if book is None:
                source = f"the failureThreshold of pool {pool} when target {target} began"
                yield MissingSource(invariant="I8", source=source)

    def _begin(self) -> None:
        """Who is in flight when the journal begins."""
        timeline = self._case.timeline
        time = timeline.time_of(0) if timeline.revisions else 0.0
        self._apply_facts(time)
        for uid, node in self._nodes.items():
            facts = timeline.nodes[uid].at(-1)
            if target := target_of(facts):
                node.book = self._book(facts.pool, target, place=-1, time=time)
                if node.book:
                    node.book.in_flight.add(uid)

    # What people accept.

    def _apply_facts(self, until: float) -> None:
        while self._waiting and self._waiting[-1].since <= until:
            facts = self._waiting.pop()
            self._accepted[facts.key] = dict(facts.accepted)
            self._accept(facts.key, facts.since)

    def _accept(self, pool: str, time: float) -> None:
        for (key, target), book in self._books.items():
            if book and key == pool:
                book.accept_failures(self._accepts(pool, target), time)

    def _accepts(self, pool: str, target: str) -> int:
        released, failures = self._released.get(pool, ("", 0))
        said = failures if released == target else 0
        return self._accepted.get(pool, {}).get(target, said)

    def _edition(self, edition: RolloutWrite) -> Iterator[AuditFinding]:
        pool = edition.pool
        self._released[pool] = edition.release
        self._accept(pool, edition.time)
        for target, record in edition.begun.items():
            self._books[pool, target] = TargetCounts(
                pool=pool,
                target=target,
                threshold=record.threshold,
                allowed=[(float("-inf"), self._accepts(pool, target))],
                failed=dict.fromkeys(record.failed, -1),
                validated=set(record.validated),
            )
        yield from _forgotten(edition)
        known = self._known.get(pool, frozenset())
        for target in sorted(known - edition.targets):
            yield from self._dropped(edition, target)
        if edition.exists and pool in self._lost:
            self._lost.discard(pool)
            self._remembered(edition)
            for target in edition.targets:
                self._taken_up(edition, target)
        elif not edition.exists:
            self._lost.add(pool)
        self._known[pool] = edition.targets

    def _dropped(self, edition: RolloutWrite, target: str) -> Iterator[AuditFinding]:
        """A target may be forgotten once it is proven and complete."""
        book = self._books.get((edition.pool, target))
        if book is None:
            return
        if book.is_proven and not book.is_halted:
            if not edition.exists:
                self._proven_until[edition.pool, target] = edition.position
            if book.in_flight:
                book.validated.clear()  # the Rollout was lost: who is in flight proves it anew
            else:
                del self._books[edition.pool, target]
        elif book.failed:
            what = f"dropped target {target}, on which {len(book.failed)} nodes failed"
            yield from _by_us(edition, what)

    def _remembered(self, edition: RolloutWrite) -> None:
        """The Rollout was lost: of failures nothing is known but what Nodes still say."""
        lives = self._case.timeline.nodes
        for (pool, target), book in self._books.items():
            if book and pool == edition.pool:
                book.failed = {
                    uid: place
                    for uid, place in book.failed.items()
                    if _failed_on(lives[uid].at(edition.position), target)
                }

    def _taken_up(self, edition: RolloutWrite, target: str) -> None:
        """The Rollout was lost: where the pool has grown since, a share of it is more."""
        book = self._books.get((edition.pool, target))
        threshold = self._threshold(edition.pool, edition.position, edition.time)
        if book and threshold:
            book.threshold = max(book.threshold, threshold)

    # What happens to nodes.

    def _change(self, change: NodeChange) -> Iterator[AuditFinding]:
        uid = change.node.uid
        node = self._nodes.setdefault(uid, UpgradeHistory())
        if change.ours:
            self._ending(change, node)
        elif node.book and node.is_abandoned(change):
            # Nobody knows how it ended: it has failed, and is outside the counts from now on.
            node.failed_on, node.proven_label = node.failed_on or node.book.target, ""
        target = target_of(change.after)
        pool = change.after.pool if target else ""
        if node.book and (node.book.pool, node.book.target) != (pool, target):
            node.book.remove(uid)
            node.book = None
        if not target:
            return
        if node.book is None:
            book = self._book(pool, target, place=change.position, time=change.revision.time)
            if book is None:
                return
            node.book = book
            yield from self._granted(change, node, book)
        if change.ours and node.is_start(change):
            yield from self._started(change, node, node.book)

    def _ending(self, change: NodeChange, node: UpgradeHistory) -> None:
        """What our write says of how an operation ended."""
        before, after, uid = change.before, change.after, change.node.uid
        record = before.record
        book = node.book
        if after.failed and record and book:
            if node.started == record.token and node.failed_on in ("", book.target):
                book.failed.setdefault(uid, change.position)
            node.failed_on = node.failed_on or book.target
            node.proven_label = ""
        elif after.failed and before.operation is Operation.VALIDATE:
            node.failed_on = node.failed_on or AT_REST
        evidence = after.record.evidence if after.record else None
        done = change.lease_ended and after.state == UpgradeState.UPGRADE_DONE
        if done and evidence and evidence.passed:
            node.failed_on, node.proven_label = "", after.driver
            if book:
                book.validate(uid)

    def _granted(
        self, change: NodeChange, node: UpgradeHistory, book: TargetCounts
    ) -> Iterator[AuditFinding]:
        uid, name = change.node.uid, change.node.name
        since = change.revision.time - STALE_SECONDS
        what = f"{name} was granted for target {book.target} of pool {book.pool}"
        record = change.after.record
        if node.failed_on not in ("", book.target) and record and record.outside:
            book.in_flight_uncounted.add(uid)
            if change.ours and len(book.in_flight_uncounted) > 1:
                yield write_violation(
                    "I8", change, f"{what} beside another node that had failed before"
                )
            yield from self._halted(change, book, what)
            return
        if node.failed_on != book.target:
            node.failed_on = ""  # what failed before its start, or was in the counts all the same
        more = uid not in book.at_risk
        book.in_flight.add(uid)
        if record and node.is_restart(record.label):
            return
        allowance = book.failure_allowance(since)
        until = self._proven_until.get((book.pool, book.target), -1)
        proven = book.is_proven or self._decided(change) < until
        if change.ours and more and not proven and len(book.at_risk) > allowance:
            message = f"{what}, which is unproven and had {allowance} in flight or failed already"
            yield write_violation("I8", change, message)
        else:
            yield from self._halted(change, book, what)

    def _started(
        self, change: NodeChange, node: UpgradeHistory, book: TargetCounts
    ) -> Iterator[AuditFinding]:
        node.started = change.after.record.token if change.after.record else -1
        if node.is_restart(change.after.driver):
            return
        node.proven_label = ""
        what = f"{change.node.name} was started on target {book.target} of pool {book.pool}"
        yield from self._halted(change, book, what)

    def _halted(self, change: NodeChange, book: TargetCounts, what: str) -> Iterator[AuditFinding]:
        since = change.revision.time - STALE_SECONDS
        if change.ours and book.was_halted(self._decided(change), since):
            failed = len(book.failed)
            yield write_violation(
                "I8", change, f"{what}, which is halted: {failed} nodes failed on it"
            )

    def _decided(self, change: NodeChange) -> int:
        """The place of the newest write that this one could not but know."""
        timeline, time = self._case.timeline, change.revision.time
        before = change.before.record.seen if change.before.record else {}
        seen = self._case.revision_seen(change)
        if seen is None or (change.after.record and change.after.record.seen == before):
            return timeline.position_at(time - ROUND_SECONDS)
        return max(timeline.position_of(seen), timeline.position_at(time - STALE_SECONDS))

    def _book(self, pool: str, target: str, *, place: int, time: float) -> TargetCounts | None:
        key = pool, target
        if key not in self._books:
            threshold = self._threshold(pool, place, time)
            allowed = [(float("-inf"), self._accepts(pool, target))]
            self._books[key] = (
                None
                if threshold is None
                else TargetCounts(pool=pool, target=target, threshold=threshold, allowed=allowed)
            )
        return self._books[key]

    def _threshold(self, pool: str, place: int, time: float) -> int | None:
        """The highest that it may have been at a moment; None: nobody knows."""
        accounts = self._case.availability
        base = accounts.base(pool, place) or accounts.largest(pool, place)
        terms = accounts.limits(pool, since=time - STALE_SECONDS, until=time)
        shares = [max(1, scaled_value(one.failure_threshold, one.base or base)) for one in terms]
        return max(shares, default=None)


def _failed_on(facts: ReplayedNode, target: str) -> bool:
    """Whether the Node says that it failed there."""
    return facts.record is not None and facts.failed and facts.record.target == target


def _forgotten(edition: RolloutWrite) -> Iterator[AuditFinding]:
    """Failures stick."""
    if edition.revision is None:
        return
    for path, (before, after) in edition.revision.changed.items():
        if not path.startswith("status.targets") or segments(path)[-1] != "failed":
            continue
        lost = set(before or ()) - set(after or ())
        if after is not None and lost:
            target = segments(path)[2]
            what = f"forgot that {', '.join(sorted(lost))} failed on target {target}"
            yield from _by_us(edition, what)


def _by_us(edition: RolloutWrite, what: str) -> Iterator[AuditFinding]:
    revision = edition.revision
    if revision is not None and revision.manager == MANAGER:
        yield Violation(
            invariant="I8",
            time=revision.time,
            revision=revision.revision,
            message=f"the Rollout of pool {edition.pool} {what}",
        )
