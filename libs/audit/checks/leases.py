"""I2 on Nodes: at most one lease, increasing tokens, and no change without a lease."""

from collections import defaultdict
from collections.abc import Iterator

from libs.audit.checks.case import AuditCase, write_violation
from libs.audit.findings import AuditFinding
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import ReplayedNode
from libs.audit.replay.timeline import OURS
from libs.contracts.node import LeaseOwner


def leases(case: AuditCase) -> Iterator[AuditFinding]:
    """Check the sequence of leases of each Node."""
    highest_tokens: dict[str, int] = defaultdict(int)
    for change in case.timeline.changes:
        uid, before, after = change.node.uid, change.before, change.after
        highest = max(highest_tokens[uid], _token(before))
        for message in _messages(change, highest):
            yield write_violation("I2", change, f"{change.node.name}: {message}")
        if (before.upgrade or before.record) and not (after.lease or after.record):
            # Only the journals of the agents still show the last token.
            highest = _journaled_token(case, change)
        highest_tokens[uid] = max(highest, _token(after))


def _token(node: ReplayedNode) -> int:
    return max((part.token for part in (node.lease, node.record) if part), default=0)


def _journaled_token(case: AuditCase, change: NodeChange) -> int:
    """Return the highest token that an agent of the node has journaled so far."""
    uid, until = change.node.uid, change.revision.time
    entries = (entry for entry in case.entries if entry.node_uid == uid and entry.time <= until)
    return max((entry.token for entry in entries), default=0)


def _messages(change: NodeChange, highest: int) -> Iterator[str]:
    if change.ours:
        yield from _lease(change, highest)
        yield from _record(change)
        yield from _unleased(change)
    else:
        yield from _foreign_lease(change)


def _lease(change: NodeChange, highest: int) -> Iterator[str]:
    before, after = change.before.lease, change.after.lease
    if before == after:
        return
    if before and before.owner != LeaseOwner.UPGRADE:
        yield f"the lease of {before.owner} with token {before.token} was changed by us"
    elif before and after and (before.token, before.owner) != (after.token, after.owner):
        yield (
            f"token {after.token} of {after.owner} replaced token {before.token},"
            " which was still held"
        )
    is_new = after and not (before and before.token == after.token)
    if after and is_new and after.token <= highest:
        yield f"a lease started with token {after.token}, although token {highest} was already used"


def _record(change: NodeChange) -> Iterator[str]:
    lease, record = change.after.upgrade, change.after.record
    if lease and record is None:
        yield f"it has a lease with token {lease.token} but no record"
    if lease and record and record.token != lease.token:
        yield f"its record has token {record.token}, but its lease has token {lease.token}"


def _unleased(change: NodeChange) -> Iterator[str]:
    if change.before.upgrade or change.after.upgrade or change.before.request:
        return
    if change.label_moved and not _leaves_driver(change):
        yield (
            f"its driver label went from {change.before.driver!r} to {change.after.driver!r}"
            " without a lease"
        )
    if change.after.cordoned and not change.before.cordoned:
        yield "it was cordoned without a lease"


def _leaves_driver(change: NodeChange) -> bool:
    """Report whether a write only drops our label from a driver that came with the machine."""
    record = change.before.record
    if record is None or change.after.record or change.after.driver or record.started:
        return False
    return record.evidence is None or not record.evidence.driver_pod_uid


def _foreign_lease(change: NodeChange) -> Iterator[str]:
    """Check that none of our other services changed the lease of an upgrade."""
    manager = change.revision.manager
    upgrades = change.before.upgrade, change.after.upgrade
    if manager.startswith(OURS) and upgrades[0] != upgrades[1] and change.after.exists:
        yield f"{manager} changed the lease of an upgrade"
