"""I2 on Nodes: at most one lease, increasing tokens, and no change without a lease."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from libs.audit.case import (
    CHANGING_COMMANDS,
    SKEW_SECONDS,
    AuditCase,
    AuditFinding,
    agent_violation,
    write_violation,
)
from libs.audit.nodes import NodeHistory, ReplayedNode
from libs.audit.timeline import OURS, NodeChange
from libs.contracts.commands import CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
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


_EFFECTS: Final = frozenset({EntryPhase.STARTED, EntryPhase.STEP, EntryPhase.FINISHED})
_NO_ORDER: Final = Order(-1, -1)


def orders(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node, boot and component that no started op is older than an earlier entry."""
    seen: dict[tuple[str, str, str], tuple[int, Order]] = {}
    for entry in case.entries:
        if entry.phase not in _EFFECTS:
            continue
        key = entry.node_uid, entry.boot_id, entry.component
        epoch, order = seen.get(key, (0, _NO_ORDER))
        if entry.phase == EntryPhase.STARTED:
            if entry.epoch < epoch:
                yield _violation(
                    entry, f"under epoch {entry.epoch}, after it had seen epoch {epoch}"
                )
            if entry.order < order:
                yield _violation(entry, f"after it had seen the later op {order}")
        seen[key] = max(epoch, entry.epoch), max(order, entry.order)


def token_order(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node and boot that no op starts under a token older than another component's."""
    seen: dict[tuple[str, str], tuple[int, str]] = {}
    for entry in sorted(case.entries, key=lambda entry: entry.time):
        if entry.phase != EntryPhase.STARTED or entry.command == CommandKind.IDLE:
            continue
        key = entry.node_uid, entry.boot_id
        token, component = seen.get(key, (0, ""))
        if entry.token < token and component != entry.component:
            yield _violation(entry, f"when {component} already had token {token}")
        if entry.token >= token:
            seen[key] = entry.token, entry.component


class _LeaseSpan(NamedTuple):
    token: int
    since: float
    until: float


def under_lease(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that each started op has the token of the Node's lease.

    An agent that lost its journal may start the op in its slot again, whatever became of the lease.
    """
    spans: dict[str, list[_LeaseSpan]] = defaultdict(list)
    for uid, node in case.timeline.nodes.items():
        spans[uid] = list(_lease_spans(case, node))
    first: dict[tuple[str, str, Order], float] = {}
    for entry in case.entries:
        if entry.phase != EntryPhase.STARTED or entry.command == CommandKind.IDLE:
            continue
        if entry.node_uid not in case.timeline.nodes:
            continue
        since = first.setdefault((entry.node_uid, entry.component, entry.order), entry.time)
        leases = [span for span in spans[entry.node_uid] if span.since - SKEW_SECONDS <= entry.time]
        tokens = [lease.token for lease in leases if entry.time <= lease.until + SKEW_SECONDS]
        if entry.command not in CHANGING_COMMANDS:
            tokens += [lease.token for lease in leases[-1:]]
        if entry.token not in tokens and not _is_repeated(case, entry, since):
            now = f"the lease had token {tokens[-1]}" if tokens else "the node had no lease"
            yield _violation(entry, f"under token {entry.token} when {now}")


def _is_repeated(case: AuditCase, entry: Entry, since: float) -> bool:
    """Report whether the agent lost its journal after it had first started the op."""
    return any(
        (loss.node_uid, loss.component) == (entry.node_uid, entry.component)
        and since <= loss.time < entry.time
        for loss in case.journal.lost_journals
    )


def _lease_spans(case: AuditCase, history: NodeHistory) -> Iterator[_LeaseSpan]:
    token, since = None, 0.0
    for position, node in history.states():
        new_token = node.lease.token if node.lease else None
        if new_token == token:
            continue
        time = case.timeline.time_of(position)
        if token is not None:
            yield _LeaseSpan(token, since, time)
        token, since = new_token, time
    if token is not None:
        yield _LeaseSpan(token, since, float("inf"))


def _violation(entry: Entry, problem: str) -> AuditFinding:
    message = f"{entry.component} of {entry.node} started {entry.command} {entry.order} {problem}"
    return agent_violation("I2", entry, message)
