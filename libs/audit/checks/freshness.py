"""I6: no write that lowers capacity is decided on stale sources.

The record of a lowering write names the revision of each source on which it was decided. A source
was stale if, longer before the write than the limit, the API server had a newer object of its kind.
"""

from collections.abc import Iterator
from typing import Final

from libs.audit.checks.case import NODES, STALE_SECONDS, AuditCase, revision_in, write_violation
from libs.audit.findings import AuditFinding
from libs.audit.replay.changes import NodeChange
from libs.contracts import rollout
from libs.policy.kinds import KINDS

_POLICIES: Final = tuple(kind.name for kind in KINDS.values() if kind.name != rollout.KIND)
SOURCES: Final[dict[str, tuple[str, ...]]] = {
    NODES: ("Node",),
    "pods": ("Pod",),
    "daemonsets": ("DaemonSet",),
    "configmaps": ("ConfigMap",),
    "leases": ("Lease",),
    "policies": _POLICIES,
    **{kind.plural: (kind.name,) for kind in KINDS.values()},
}
"""Kinds by source. A source of one namespace is named `source/namespace`."""


def freshness(case: AuditCase) -> Iterator[AuditFinding]:
    """Check the sources of each lowering write."""
    for change in case.lowering_writes:
        for message in _messages(case, change):
            yield write_violation(
                "I6", change, f"{change.node.name} was made unavailable {message}"
            )


def _messages(case: AuditCase, change: NodeChange) -> Iterator[str]:
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
            yield from _stale(case, change, source, revision)


def _stale(case: AuditCase, change: NodeChange, source: str, revision: int) -> Iterator[str]:
    plural, _, namespace = source.partition("/")
    for kind in SOURCES.get(plural, ()):
        newer = case.timeline.newer_than(f"{kind}/{namespace}" if namespace else kind, revision)
        if newer and newer[1] < change.revision.time - STALE_SECONDS:
            behind = change.revision.time - newer[1]
            yield (
                f"on the stale revision {revision} of {source}: revision {newer[0]} of a {kind}"
                f" was {behind:.0f} s old"
            )
