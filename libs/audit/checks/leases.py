"""I2 on Nodes: at most one lease, tokens that grow, and nothing done without a lease."""

from collections import defaultdict
from collections.abc import Iterator

from libs.audit.checks.case import AuditCase, write_violation
from libs.audit.findings import AuditFinding
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import ReplayedNode
from libs.audit.replay.timeline import OURS
from libs.contracts.node import LeaseOwner


class _Known:
    """The highest token that a Node ever showed."""

    def __init__(self) -> None:
        self.token = 0

    def learn(self, facts: ReplayedNode) -> None:
        tokens = (part.token for part in (facts.lease, facts.record) if part)
        self.token = max(self.token, *tokens, 0)


def leases(case: AuditCase) -> Iterator[AuditFinding]:
    """The sequence of leases of each Node."""
    known: dict[str, _Known] = defaultdict(_Known)
    for change in case.timeline.changes:
        highest = known[change.node.uid]
        highest.learn(change.before)
        for message in _messages(change, highest):
            yield write_violation("I2", change, f"{change.node.name}: {message}")
        before, after = change.before, change.after
        if (before.upgrade or before.record) and not (after.lease or after.record):
            highest.token = _heard(case, change)
        highest.learn(change.after)


def _heard(case: AuditCase, change: NodeChange) -> int:
    """The highest token that an agent of this node knows: where its lease and its record
    are gone, that is all that is left to count on from.
    """
    uid, until = change.node.uid, change.revision.time
    known = (entry for entry in case.entries if entry.node_uid == uid and entry.time <= until)
    return max((entry.token for entry in known), default=0)


def _messages(change: NodeChange, highest: _Known) -> Iterator[str]:
    if change.ours:
        yield from _lease(change, highest)
        yield from _record(change)
        yield from _unleased(change)
    else:
        yield from _meddled(change)


def _lease(change: NodeChange, highest: _Known) -> Iterator[str]:
    before, after = change.before.lease, change.after.lease
    if before == after:
        return
    if before and before.owner != LeaseOwner.UPGRADE:
        yield f"the lease of {before.owner} with token {before.token} was not ours to change"
    elif before and after and (before.token, before.owner) != (after.token, after.owner):
        yield (
            f"token {after.token} of {after.owner} took the place of token {before.token},"
            " which had not ended"
        )
    begins = after if not (before and after and before.token == after.token) else None
    if begins and begins.token <= highest.token:
        yield f"a lease began with token {begins.token}, after {highest.token} had been given"


def _record(change: NodeChange) -> Iterator[str]:
    lease, record = change.after.upgrade, change.after.record
    if lease and record is None:
        yield f"it is under token {lease.token} without a record"
    if lease and record and record.token != lease.token:
        yield f"its record says token {record.token}, and its lease {lease.token}"


def _unleased(change: NodeChange) -> Iterator[str]:
    if change.before.upgrade or change.after.upgrade or change.before.request:
        return
    if change.label_moved and not _let_be(change):
        yield (
            f"its driver label went from {change.before.driver!r} to {change.after.driver!r}"
            " without a lease"
        )
    if change.after.cordoned and not change.before.cordoned:
        yield "it was cordoned without a lease"


def _let_be(change: NodeChange) -> bool:
    """A driver that came with the machine stays there when we go: only what we wrote is dropped."""
    record = change.before.record
    if record is None or change.after.record or change.after.driver or record.started:
        return False
    return record.evidence is None or not record.evidence.driver_pod_uid


def _meddled(change: NodeChange) -> Iterator[str]:
    """Another service of ours has no say in the lease of an upgrade."""
    manager = change.revision.manager
    upgrades = change.before.upgrade, change.after.upgrade
    if manager.startswith(OURS) and upgrades[0] != upgrades[1] and change.after.exists:
        yield f"{manager} changed the lease of an upgrade"
