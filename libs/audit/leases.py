"""I2: a node has one lease at a time, and no agent starts an older command.

On Nodes: at most one lease, increasing tokens, and no change without a lease.

On machines: an agent starts no op under an older epoch, order or token, or without a lease. Once a
new leader has sent a command of its own to a node, no agent of the node takes one of an earlier
leader. `idle` is the command for a node without a lease: it needs none, and is not adopted.
`quiesce` and `validate` change nothing, and an agent may start them if it read its slot just before
the lease ended: they need the token of the latest lease. `swap` and `install` need the current
lease.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from libs.audit.case import (
    CHANGING_COMMANDS,
    AuditCase,
    AuditFinding,
    agent_violation,
    write_violation,
)
from libs.audit.nodes import ENGINE_OWNERS, NodeHistory, ReplayedNode
from libs.audit.timeline import OURS, NodeChange
from libs.contracts.commands import CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.node import LeaseOwner

READ_SECONDS: Final = 5.0
"""The longest time between a read of a slot at the bus and the entry of the agent that read it."""

_EFFECTS: Final = frozenset({EntryPhase.STARTED, EntryPhase.STEP, EntryPhase.FINISHED})


def leases(case: AuditCase) -> Iterator[AuditFinding]:
    """Check the sequence of leases of each Node."""
    highest_tokens: dict[str, int] = defaultdict(int)
    for change in case.timeline.changes:
        uid, before, after = change.node.uid, change.before, change.after
        highest = max(highest_tokens[uid], _token(before))
        problems = (
            _own_write(case, change, highest) if change.by_scheduler else _foreign_lease(change)
        )
        for problem in problems:
            yield write_violation("I2", change, f"{change.node.name}: {problem}")
        if (before.upgrade or before.record) and not (after.lease or after.record):
            # Only the journals of the agents still show the last token.
            highest = _journaled_token(case, change)
        highest_tokens[uid] = max(highest, _token(after))


def _token(node: ReplayedNode) -> int:
    """Return the last token of an operation; a person's lease begins none."""
    lease = None if node.lease and node.lease.owner is LeaseOwner.HUMAN else node.lease
    return max((part.token for part in (lease, node.record) if part), default=0)


def _journaled_token(case: AuditCase, change: NodeChange) -> int:
    """Return the highest token that an agent of the node has journaled so far."""
    uid = change.node.uid
    until = change.revision.time - case.clocks.put_back(uid)
    entries = (entry for entry in case.entries if entry.node_uid == uid and entry.time <= until)
    return max((entry.token for entry in entries), default=0)


def _own_write(case: AuditCase, change: NodeChange, highest: int) -> Iterator[str]:
    before, after = change.before.lease, change.after.lease
    if before != after:
        if before and before.owner not in ENGINE_OWNERS:
            yield f"the lease of {before.owner} with token {before.token} was changed by us"
        elif after and change.before.held_by:
            yield f"token {after.token} was taken although a person had claimed the node"
        elif before and after and (before.token, before.owner) != (after.token, after.owner):
            was_held = f"replaced token {before.token}, which was still held"
            yield f"token {after.token} of {after.owner} {was_held}"
        is_new = after and not (before and before.token == after.token)
        if after and is_new and after.token <= highest:
            used = f"although token {highest} was already used"
            yield f"a lease started with token {after.token}, {used}"
    if change.before.claim != change.after.claim:
        yield "a person's claim of the lease was changed by us"
    lease, record = change.after.upgrade, change.after.record
    if lease and record is None:
        yield f"it has a lease with token {lease.token} but no record"
    elif lease and record and record.token != lease.token:
        yield f"its record has token {record.token}, but its lease has token {lease.token}"
    if not (change.before.upgrade or lease or change.before.request):
        if change.label_moved and not _leaves_driver(case, change):
            labels = f"{change.before.driver!r} to {change.after.driver!r}"
            yield f"its driver label went from {labels} without a lease"
        if change.after.cordoned and not change.before.cordoned:
            yield "it was cordoned without a lease"


def _leaves_driver(case: AuditCase, change: NodeChange) -> bool:
    """Report whether a write only drops the label, and no driver follows it.

    Either the driver came with the machine, or the label without a record has no driver pod.
    """
    record = change.before.record
    if change.after.record or change.after.driver:
        return False
    if record is None:
        pods = (pod.at(change.position) for pod in case.timeline.pods.values())
        return not any(pod.node == change.node.name and pod.label for pod in pods)
    if record.started:
        return False
    return record.evidence is None or not record.evidence.driver_pod_uid


def _foreign_lease(change: NodeChange) -> Iterator[str]:
    """Check that none of our other services changed the lease of an upgrade."""
    manager = change.revision.manager
    changed = change.before.upgrade != change.after.upgrade and change.after.exists
    if changed and manager.startswith(OURS):
        yield f"{manager} changed the lease of an upgrade"


def orders(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node, boot and component that no started op is older than an earlier entry."""
    latest: dict[tuple[str, str, str], Order] = {}
    for entry in case.entries:
        if entry.phase not in _EFFECTS:
            continue
        key = entry.node_uid, entry.boot_id, entry.component
        order = latest.get(key, Order(-1, -1))
        if entry.phase == EntryPhase.STARTED and entry.order < order:
            yield _start_violation(entry, f"after it had seen the later op {order}")
        latest[key] = max(order, entry.order)


def epochs(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node, boot and component that no op starts under an epoch older than an entry's."""
    latest: dict[tuple[str, str, str], int] = {}
    for entry in case.entries:
        if entry.phase not in _EFFECTS:
            continue
        key = entry.node_uid, entry.boot_id, entry.component
        epoch = latest.get(key, 0)
        if entry.phase == EntryPhase.STARTED and entry.epoch < epoch:
            yield _start_violation(
                entry, f"under epoch {entry.epoch}, after it had seen epoch {epoch}"
            )
        latest[key] = max(epoch, entry.epoch)


def adoption(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node and boot that a new leader adopted all slots before its own first command.

    It writes its epoch into one slot after another, so that meanwhile other components may still
    take a command of its predecessor. The first order that a component takes under an epoch may be
    an adopted one; the second is the leader's own.
    """
    taken: dict[tuple[str, str, str, int], set[Order]] = defaultdict(set)
    own_commands: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in _by_time(_of_begun_ops(case.entries)):
        node = entry.node_uid, entry.boot_id
        orders = taken[*node, entry.component, entry.epoch]
        if entry.phase not in _EFFECTS or entry.order in orders:
            continue
        orders.add(entry.order)
        if entry.command != CommandKind.IDLE:
            yield from _adoption_missed(case, entry, own_commands[node])
        if len(orders) == 2:
            own_commands[node].append(entry)


def _of_begun_ops(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Return the entries of ops whose beginning is in the journal: it may begin within one."""
    begun: set[tuple[str, str, Order]] = set()
    for entry in entries:
        op = entry.node_uid, entry.component, entry.order
        is_seen = entry.phase == EntryPhase.STEP and not entry.detail
        if entry.phase == EntryPhase.STARTED or is_seen:
            begun.add(op)
        if op in begun:
            yield entry


def _by_time(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries by time; those of one component keep their order if its clock went back."""
    latest: dict[tuple[str, str], float] = {}
    timed: list[tuple[float, Entry]] = []
    for entry in entries:
        source = entry.node_uid, entry.component
        latest[source] = max(entry.time, latest.get(source, entry.time))
        timed.append((latest[source], entry))
    return [entry for _, entry in sorted(timed, key=itemgetter(0))]


def _adoption_missed(
    case: AuditCase, entry: Entry, own_commands: list[Entry]
) -> Iterator[AuditFinding]:
    delay = READ_SECONDS + case.clocks.put_back(entry.node_uid)
    for own in own_commands:
        if own.epoch > entry.epoch and own.time + delay < entry.time:
            command = f"{entry.component} of {entry.node} took {entry.command} {entry.order}"
            later = f"{own.component} already had the command {own.order} of epoch {own.epoch}"
            message = f"{command} under epoch {entry.epoch}, when {later}"
            yield agent_violation("I2", entry, message)
            return


def token_order(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node and boot that no op starts under a token older than another component's."""
    latest: dict[tuple[str, str], Entry] = {}
    for entry in _by_time(case.entries):
        if not _needs_token(entry):
            continue
        key = entry.node_uid, entry.boot_id
        last = latest.get(key, entry)
        is_later = last.time <= entry.time - case.clocks.put_back(entry.node_uid)
        if entry.token < last.token and last.component != entry.component and is_later:
            yield _start_violation(entry, f"when {last.component} already had token {last.token}")
        if entry.token >= last.token:
            latest[key] = entry


def _needs_token(entry: Entry) -> bool:
    return entry.phase == EntryPhase.STARTED and entry.command != CommandKind.IDLE


class _LeaseSpan(NamedTuple):
    token: int
    since: float
    until: float


def under_lease(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that each started op has the token of the Node's lease.

    An agent that lost its journal may start the op in its slot again, even after the lease ended.
    """
    until = case.journal.revisions_until
    journals: dict[tuple[str, str], Order] = {}
    spans = {uid: _lease_spans(case, node) for uid, node in case.timeline.nodes.items()}
    first: dict[tuple[str, str, Order], float] = {}
    for entry in case.entries:
        if not _needs_token(entry) or entry.node_uid not in spans:
            continue
        if until is not None and entry.time > until:
            continue
        if case.journal.journals_since is not None:
            # A journal that was lost begins with the op that is repeated.
            own = journals.setdefault((entry.node_uid, entry.component), entry.order)
            if own == entry.order:
                continue
        since = first.setdefault((entry.node_uid, entry.component, entry.order), entry.time)
        skew = case.clocks.skew(entry.node_uid)
        begun = [span for span in spans[entry.node_uid] if span.since - skew <= entry.time]
        tokens = [span.token for span in begun if entry.time <= span.until + skew]
        if entry.command not in CHANGING_COMMANDS:
            tokens += _latest_tokens(begun, case.clocks.put_back(entry.node_uid))
        if entry.token not in tokens and not _is_repeated(case, entry, since):
            lease = f"the lease had token {tokens[-1]}" if tokens else "the node had no lease"
            yield _start_violation(entry, f"under token {entry.token} when {lease}")


def _latest_tokens(begun: list[_LeaseSpan], put_back: float) -> Iterator[int]:
    """Yield the token of the last lease; of more, where the clock hides which was the last."""
    for span in begun:
        if span is begun[-1] or span.until + put_back > begun[-1].since:
            yield span.token


def _is_repeated(case: AuditCase, entry: Entry, since: float) -> bool:
    """Report whether the agent lost its journal after it had first started the op."""
    back = case.clocks.put_back(entry.node_uid)
    return any(
        (loss.node_uid, loss.component) == (entry.node_uid, entry.component)
        and since - back <= loss.time < entry.time + back
        for loss in case.journal.lost_journals
    )


def _lease_spans(case: AuditCase, history: NodeHistory) -> list[_LeaseSpan]:
    tokens: list[tuple[int | None, float]] = [(None, 0.0)]
    for position, node in history.items():
        token = node.lease.token if node.lease else None
        if token != tokens[-1][0]:
            tokens.append((token, case.timeline.time_of(position)))
    tokens.append((None, float("inf")))
    return [
        _LeaseSpan(token, since, until)
        for (token, since), (_, until) in pairwise(tokens)
        if token is not None
    ]


def _start_violation(entry: Entry, problem: str) -> AuditFinding:
    message = f"{entry.component} of {entry.node} started {entry.command} {entry.order} {problem}"
    return agent_violation("I2", entry, message)
