"""I1: no write of ours takes more of a pool away than its owner allowed.

The set of unavailable nodes is that of the revisions on which the write says it was decided, with
all our own writes up to it; the limit is the highest that held since then. So a node that turns
NotReady in between, or a limit that somebody lowers in between, is nobody's fault.
"""

from collections.abc import Iterator

from libs.audit.checks.case import STALE_SECONDS, AuditCase, write_violation
from libs.audit.findings import AuditFinding, MissingSource
from libs.audit.replay.changes import NodeChange
from libs.contracts.node import Operation


def budget(case: AuditCase) -> Iterator[AuditFinding]:
    """Each lowering write against the limit of its pool."""
    unknown: set[str] = set()
    for change in case.lowering_writes:
        pool = case.availability.node_availability(change.node.uid, change.position).pool
        revision = case.revision_seen(change)
        seen = change.position - 1 if revision is None else case.timeline.position_of(revision)
        limit = _limit(case, pool, change, seen)
        if limit is None:
            unknown.add(pool)
            continue
        others = case.availability.unavailable(
            pool, seen=seen, place=change.position - 1, without=change.node.uid
        )
        if others + 1 > limit:
            yield write_violation(
                "I1",
                change,
                f"{change.node.name} was made unavailable as number {others + 1} of pool {pool},"
                f" of which {limit} may be, as of revision {revision or 'before it'}",
            )
    for pool in sorted(unknown):
        yield MissingSource(invariant="I1", source=f"the limits of pool {pool or 'without a name'}")


def _limit(case: AuditCase, pool: str, change: NodeChange, seen: int) -> int | None:
    """The highest that held between what was seen and the write."""
    until = change.revision.time
    since = max(case.timeline.time_of(seen), until - STALE_SECONDS)
    size = case.availability.size(pool, seen)
    bases = [case.availability.base(pool, place) for place in (seen, change.position)]
    said = max((base for base in bases if base), default=size)
    limits = [
        terms.limit(min(terms.base or said, size))
        for terms in case.availability.limits(pool, since=since, until=until)
    ]
    return max(limits, default=None)


def readiness(case: AuditCase) -> Iterator[AuditFinding]:
    """A NotReady node is not begun with: it may come back at any moment."""
    for change in case.writes:
        starts = change.lease_taken and change.after.operation != Operation.VALIDATE
        if starts and not change.before.ready:
            yield write_violation(
                "I1",
                change,
                f"{change.node.name} was leased while it was NotReady",
            )
