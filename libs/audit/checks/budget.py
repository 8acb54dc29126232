"""I1: no write of ours takes more of a pool away than its owner allowed.

The set of unavailable nodes is that of the revisions on which the write says it was decided, with
all our own writes up to it; the limit is the highest that held since then. So a node that turns
NotReady in between, or a limit that somebody lowers in between, is nobody's fault.
"""

from collections.abc import Iterator

from libs.audit.checks.case import STALE, Case, flaw
from libs.audit.findings import Finding, Lack
from libs.audit.replay.happened import Change
from libs.contracts.node import Operation


def budget(case: Case) -> Iterator[Finding]:
    """Each lowering write against the limit of its pool."""
    unknown: set[str] = set()
    for change in case.lowering:
        pool = case.accounts.standing(change.node.uid, change.place).pool
        revision = case.seen(change)
        seen = change.place - 1 if revision is None else case.timeline.place_of(revision)
        limit = _limit(case, pool, change, seen)
        if limit is None:
            unknown.add(pool)
            continue
        others = case.accounts.unavailable(
            pool, seen=seen, place=change.place - 1, apart=change.node.uid
        )
        if others + 1 > limit:
            yield flaw(
                "I1",
                change,
                f"{change.node.name} was made unavailable as number {others + 1} of pool {pool},"
                f" of which {limit} may be, as of revision {revision or 'before it'}",
            )
    for pool in sorted(unknown):
        yield Lack(invariant="I1", source=f"the limits of pool {pool or 'without a name'}")


def _limit(case: Case, pool: str, change: Change, seen: int) -> int | None:
    """The highest that held between what was seen and the write."""
    until = change.revision.time
    since = max(case.timeline.time_of(seen), until - STALE)
    size = case.accounts.size(pool, seen)
    bases = [case.accounts.base(pool, place) for place in (seen, change.place)]
    said = max((base for base in bases if base), default=size)
    limits = [
        terms.limit(min(terms.base or said, size))
        for terms in case.accounts.terms(pool, since=since, until=until)
    ]
    return max(limits, default=None)


def readiness(case: Case) -> Iterator[Finding]:
    """A NotReady node is not begun with: it may come back at any moment."""
    for change in case.writes:
        starts = change.taken and change.after.operation != Operation.VALIDATE
        if starts and not change.before.ready:
            yield flaw(
                "I1",
                change,
                f"{change.node.name} was leased while it was NotReady",
            )
