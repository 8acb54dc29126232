"""I2 on machines: an agent starts no op under an older epoch, order or token, or without a lease.

`idle` is the command for a node without a lease and needs none. `quiesce` and `validate` change
nothing, and an agent may start them if it read its slot just before the lease ended: they need the
token of the latest lease. `swap` and `install` need the current lease.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from libs.audit.checks.case import CHANGING_COMMANDS, SKEW_SECONDS, AuditCase, agent_violation
from libs.audit.findings import AuditFinding
from libs.audit.replay.nodes import NodeHistory
from libs.contracts.commands import CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase

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
        for loss in case.lost_journals
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
