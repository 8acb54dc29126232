"""I10: how much we write, counted per node and attempt in runs without injected faults.

An attempt is what happens under one token. The write that marked a node as `upgrade-required`
counts with the attempt that follows; the others outside a lease are counted apart, as strictly.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from libs.audit.checks.case import AuditCase, write_violation
from libs.audit.findings import AuditFinding, Violation
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import ReplayedNode
from libs.audit.replay.timeline import OURS
from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, UpgradeState

WRITES: Final = 8
CONFLICTS: Final = 4
OF_OTHERS: Final = 6


class UpgradeAttempt(NamedTuple):
    """Where a write belongs."""

    uid: str
    token: int
    leased: bool


def _attempt(uid: str, *states: ReplayedNode) -> UpgradeAttempt:
    leases = [facts.upgrade for facts in states if facts.upgrade]
    if leases:
        return UpgradeAttempt(uid, max(lease.token for lease in leases), True)
    tokens = [facts.record.token for facts in states if facts.record]
    return UpgradeAttempt(uid, max(tokens, default=0), False)


def writes(case: AuditCase) -> Iterator[AuditFinding]:
    """Committed ones to Nodes: the scheduler's, and those of our other services."""
    own: Counter[UpgradeAttempt] = Counter()
    marked: set[str] = set()
    others: Counter[tuple[str, int]] = Counter()
    for change in case.timeline.changes:
        if not change.revision.changed:
            continue
        attempt = _attempt(change.node.uid, change.before, change.after)
        if change.ours:
            if change.new_state == UpgradeState.UPGRADE_REQUIRED and not attempt.leased:
                marked.add(attempt.uid)
            elif attempt.leased and attempt.uid in marked:
                marked.discard(attempt.uid)
                own[attempt] += 1
            own[attempt] += 1
            if own[attempt] == WRITES + 1:
                yield _too_many(change, f"the scheduler wrote it more than {WRITES} times", attempt)
        elif change.revision.manager.startswith(OURS) and attempt.token:
            others[attempt[:2]] += 1
            if others[attempt[:2]] == OF_OTHERS + 1:
                what = f"our other services wrote it more than {OF_OTHERS} times"
                yield _too_many(change, what, attempt)


def _too_many(change: NodeChange, what: str, attempt: UpgradeAttempt) -> AuditFinding:
    return write_violation("I10", change, f"{change.node.name}: {what} in attempt {attempt.token}")


def conflicts(case: AuditCase) -> Iterator[AuditFinding]:
    """Writes of the scheduler to Nodes that were refused because somebody was faster."""
    met: Counter[UpgradeAttempt] = Counter()
    for place, revision, uid in case.timeline.conflicts:
        life = case.timeline.nodes.get(uid)
        if life is None or revision.manager != MANAGER:
            continue
        attempt = _attempt(uid, life.at(place))
        met[attempt] += 1
        if met[attempt] == CONFLICTS + 1:
            message = f"{life.name}: more than {CONFLICTS} conflicts in attempt {attempt.token}"
            yield Violation(invariant="I10", node=life.name, time=revision.time, message=message)


def evictions(case: AuditCase) -> Iterator[AuditFinding]:
    """One granted eviction is enough for a pod."""
    asked: Counter[str] = Counter()
    for revision in case.revisions:
        granted = revision.verb == Verb.EVICT and 200 <= revision.code < 300
        if not granted or not revision.uid or not revision.manager.startswith(OURS):
            continue
        asked[revision.uid] += 1
        if asked[revision.uid] == 2:
            yield Violation(
                invariant="I10",
                time=revision.time,
                revision=revision.revision,
                message=f"pod {revision.namespace}/{revision.name} was evicted more than once",
            )


def kubernetes_events(case: AuditCase) -> Iterator[AuditFinding]:
    """At most one Kubernetes Event for each state that a Node showed."""
    states = Counter(change.node.name for change in case.writes if change.new_state is not None)
    said: Counter[str] = Counter()
    for revision in case.revisions:
        about = revision.changed.get("involvedObject.kind", (None, None))[1]
        created = revision.kind == "Event" and revision.code == 201
        if created and about == "Node" and revision.manager == MANAGER:
            name = str(revision.changed.get("involvedObject.name", (None, ""))[1])
            said[name] += 1
            if said[name] == states[name] + 1:
                yield Violation(
                    invariant="I10",
                    node=name,
                    time=revision.time,
                    revision=revision.revision,
                    message=f"{name} showed {states[name]} states, and has more Events than that",
                )
