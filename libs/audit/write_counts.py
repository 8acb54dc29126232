"""I10: limits on our writes per node and attempt, in runs without injected faults.

An attempt is everything under one token. The write that marks a node `upgrade-required` counts
towards the attempt that follows; other writes without a lease are counted separately, with the
same limit.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from libs.audit.case import AuditCase, AuditFinding, Violation, write_violation
from libs.audit.nodes import ReplayedNode
from libs.audit.timeline import OURS, NodeChange
from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, UpgradeState

WRITES: Final = 8
CONFLICTS: Final = 4
WRITES_OF_OTHERS: Final = 6


class UpgradeAttempt(NamedTuple):
    uid: str
    token: int
    leased: bool


def _attempt(uid: str, *states: ReplayedNode) -> UpgradeAttempt:
    leases = [state.upgrade for state in states if state.upgrade]
    if leases:
        return UpgradeAttempt(uid, max(lease.token for lease in leases), True)
    tokens = [state.record.token for state in states if state.record]
    return UpgradeAttempt(uid, max(tokens, default=0), False)


def writes(case: AuditCase) -> Iterator[AuditFinding]:
    """Count the committed writes to Nodes: the scheduler's, and those of our other services."""
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
                yield _too_many(
                    change, f"the scheduler wrote to it more than {WRITES} times", attempt
                )
        elif change.revision.manager.startswith(OURS) and attempt.token:
            others[attempt[:2]] += 1
            if others[attempt[:2]] == WRITES_OF_OTHERS + 1:
                problem = f"our other services wrote to it more than {WRITES_OF_OTHERS} times"
                yield _too_many(change, problem, attempt)


def _too_many(change: NodeChange, problem: str, attempt: UpgradeAttempt) -> AuditFinding:
    message = f"{change.node.name}: {problem} in attempt {attempt.token}"
    return write_violation("I10", change, message)


def conflicts(case: AuditCase) -> Iterator[AuditFinding]:
    """Count the writes of the scheduler to Nodes that met a conflict."""
    conflicts: Counter[UpgradeAttempt] = Counter()
    for position, revision, uid in case.timeline.conflicts:
        node = case.timeline.nodes.get(uid)
        if node is None or revision.manager != MANAGER:
            continue
        attempt = _attempt(uid, node.at(position))
        conflicts[attempt] += 1
        if conflicts[attempt] == CONFLICTS + 1:
            message = f"{node.name}: more than {CONFLICTS} conflicts in attempt {attempt.token}"
            yield Violation(invariant="I10", node=node.name, time=revision.time, message=message)


def evictions(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that each pod is evicted at most once."""
    evicted: Counter[str] = Counter()
    for revision in case.revisions:
        granted = revision.verb == Verb.EVICT and 200 <= revision.code < 300
        if not granted or not revision.uid or not revision.manager.startswith(OURS):
            continue
        evicted[revision.uid] += 1
        if evicted[revision.uid] == 2:
            yield Violation(
                invariant="I10",
                time=revision.time,
                revision=revision.revision,
                message=f"pod {revision.namespace}/{revision.name} was evicted more than once",
            )


def kubernetes_events(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that there is at most one Kubernetes Event for each state of a Node."""
    states = Counter(change.node.name for change in case.writes if change.new_state is not None)
    events: Counter[str] = Counter()
    for revision in case.revisions:
        about = revision.changed.get("involvedObject.kind", (None, None))[1]
        created = revision.kind == "Event" and revision.code == 201
        if created and about == "Node" and revision.manager == MANAGER:
            name = str(revision.changed.get("involvedObject.name", (None, ""))[1])
            events[name] += 1
            if events[name] == states[name] + 1:
                yield Violation(
                    invariant="I10",
                    node=name,
                    time=revision.time,
                    revision=revision.revision,
                    message=f"{name} had {states[name]} states, but has more Kubernetes Events",
                )
