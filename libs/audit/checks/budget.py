"""I1: no write of ours makes more of a pool unavailable than its owner allowed.

Unavailable nodes are counted at the revisions on which the write was decided, plus our own writes
since then; the limit is the highest that held since then. A node that turned NotReady, or a limit
that was lowered, after the decision is therefore no violation.
"""

from collections.abc import Iterator

from libs.audit.checks.case import STALE_SECONDS, AuditCase, write_violation
from libs.audit.findings import AuditFinding, MissingSource
from libs.audit.replay.changes import NodeChange
from libs.contracts.node import Operation


def budget(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each lowering write against the limit of its pool."""
    without_limits: set[str] = set()
    for change in case.lowering_writes:
        pool = case.availability.node_availability(change.node.uid, change.position).pool
        revision = case.revision_seen(change)
        seen = change.position - 1 if revision is None else case.timeline.position_of(revision)
        limit = _limit(case, pool, change, seen)
        if limit is None:
            without_limits.add(pool)
            continue
        others = case.availability.unavailable(
            pool, seen=seen, position=change.position - 1, without=change.node.uid
        )
        if others + 1 > limit:
            yield write_violation(
                "I1",
                change,
                f"{change.node.name} was made unavailable, which makes {others + 1} of pool {pool};"
                f" its limit is {limit} (decided on revision {revision or 'unknown'})",
            )
    for pool in sorted(without_limits):
        yield MissingSource(invariant="I1", source=f"the limits of pool {pool or 'without a name'}")


def _limit(case: AuditCase, pool: str, change: NodeChange, seen: int) -> int | None:
    """Return the highest limit that held between the decision and the write."""
    until = change.revision.time
    since = max(case.timeline.time_of(seen), until - STALE_SECONDS)
    size = case.availability.size(pool, seen)
    bases = [case.availability.base(pool, position) for position in (seen, change.position)]
    highest_base = max((base for base in bases if base), default=size)
    limits = [
        terms.limit(min(terms.base or highest_base, size))
        for terms in case.availability.limits(pool, since=since, until=until)
    ]
    return max(limits, default=None)


def readiness(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that no upgrade starts on a NotReady node: the node may come back at any moment."""
    for change in case.writes:
        starts = change.lease_taken and change.after.operation != Operation.VALIDATE
        if starts and not change.before.ready:
            yield write_violation(
                "I1",
                change,
                f"{change.node.name} was leased while it was NotReady",
            )
