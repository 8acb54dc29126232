"""I1 and I6: writes of ours keep to the limits of unavailable nodes, and to current sources.

I1: unavailable nodes are counted at the revisions on which the write was decided, plus our own
writes since then; the limit is the highest that held since the revision of the policies that was
seen. A node that turned NotReady, or a limit that was lowered, after the decision is therefore no
violation.

I6: the record of a lowering write names the revision of each source on which it was decided. A
source was stale if, longer before the write than the limit, the API server had a newer object of
its kind.
"""

from collections.abc import Iterator
from typing import Final

from libs.audit.case import (
    NODES,
    STALE_SECONDS,
    AuditCase,
    AuditFinding,
    MissingSource,
    revision_in,
    write_violation,
)
from libs.audit.pools import limit_of
from libs.audit.timeline import NodeChange
from libs.contracts import rollout
from libs.contracts.node import Operation
from libs.policy.kinds import KINDS

POLICIES: Final = "policies"
"""The source of policies and strategies in the `seen` field of a record."""

BEHIND_SECONDS: Final = 1.0
"""How far two watches of one decision may be apart."""

_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    NODES: ("Node",),
    "pods": ("Pod",),
    "daemonsets": ("DaemonSet",),
    "configmaps": ("ConfigMap",),
    "leases": ("Lease",),
    POLICIES: tuple(kind.name for kind in KINDS.values() if kind.name != rollout.KIND),
    **{kind.plural: (kind.name,) for kind in KINDS.values()},
}
"""Kinds by source. A source of one namespace is named `source/namespace`."""


def budget(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each lowering write against the limit of its pool."""
    without_limits: set[str] = set()
    for change in case.lowering_writes:
        name, uid = change.node.name, change.node.uid
        pool = case.availability.node_availability(uid, change.position).pool
        revision = case.revision_seen(change)
        seen = change.position - 1 if revision is None else case.timeline.position_of(revision)
        limit = _highest_limit(case, pool, change, seen)
        if limit is None:
            without_limits.add(pool)
            continue
        others = case.availability.unavailable(
            pool, seen=seen, position=change.position - 1, without=uid
        )
        if others + 1 > limit:
            message = (
                f"{name} was made unavailable, which makes {others + 1} of pool {pool};"
                f" its limit is {limit} (decided on revision {revision or 'unknown'})"
            )
            yield write_violation("I1", change, message)
    for pool in sorted(without_limits):
        yield MissingSource(invariant="I1", source=f"the limits of pool {pool or 'without a name'}")


def _highest_limit(case: AuditCase, pool: str, change: NodeChange, seen: int) -> int | None:
    """Return the highest limit that held between the decision and the write."""
    since = max(
        min(seen, _position_of_policies(case, change, seen)),
        case.timeline.position_before(change.position, STALE_SECONDS),
    )
    size = case.availability.size(pool, seen).nodes
    bases = [case.availability.base(pool, position) for position in (seen, change.position)]
    highest_base = max(bases) or size
    limits = [
        limit_of(facts, min(facts.base or highest_base, size))
        for facts in case.availability.limits(pool, since=since, until=change.position)
    ]
    return max(limits, default=None)


def _position_of_policies(case: AuditCase, change: NodeChange, default: int) -> int:
    """Return up to where the decision saw the limits, which are another source than the Nodes.

    The source has several kinds and the newest of their revisions: one of them may be behind it.
    """
    revision = revision_in(change.after.record.seen, POLICIES) if change.after.record else None
    if revision is None:
        return default
    timeline = case.timeline
    return timeline.position_before(timeline.position_of(revision), BEHIND_SECONDS)


def readiness(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that no upgrade starts on a NotReady node: the node may come back at any moment."""
    for change in case.writes:
        starts = change.lease_taken and change.after.operation != Operation.VALIDATE
        if starts and not change.before.ready:
            message = f"{change.node.name} was leased while it was NotReady"
            yield write_violation("I1", change, message)


def freshness(case: AuditCase) -> Iterator[AuditFinding]:
    """Check the sources of each lowering write."""
    for change in case.lowering_writes:
        for problem in _source_problems(case, change):
            message = f"{change.node.name} was made unavailable {problem}"
            yield write_violation("I6", change, message)


def _source_problems(case: AuditCase, change: NodeChange) -> Iterator[str]:
    seen = change.after.record.seen if change.after.record else {}
    if revision_in(seen, NODES) is None:
        yield "by a write whose record names no revision of the Nodes"
    before = change.revision.revision
    for source in seen:
        revision = revision_in(seen, source)
        if revision is None:
            yield f"on {seen[source]!r} of {source}, which is no revision number"
        elif before and revision >= before:
            yield f"on revision {revision} of {source}, which did not exist yet"
        else:
            yield from _staleness(case, change, source, revision)


def _staleness(case: AuditCase, change: NodeChange, source: str, revision: int) -> Iterator[str]:
    plural, _, namespace = source.partition("/")
    for kind in _SOURCES.get(plural, ()):
        newer = case.timeline.newer_than(f"{kind}/{namespace}" if namespace else kind, revision)
        is_earlier = newer and case.timeline.position_of(newer[0]) < change.position
        if newer and is_earlier and newer[1] < change.revision.time - STALE_SECONDS:
            behind = change.revision.time - newer[1]
            yield (
                f"on the stale revision {revision} of {source}: revision {newer[0]} of a {kind}"
                f" was {behind:.0f} s old"
            )
