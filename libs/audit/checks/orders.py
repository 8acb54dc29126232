"""I2 on machines: an agent begins nothing under an older epoch, order or token, or without a lease.

`idle` is what a node without a lease is told, so it needs none. `quiesce` and `validate` change
nothing, and may be begun by an agent that read its slot just before the lease ended: they need the
token of the last lease. `swap` and `install` need the lease of the moment.
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
_FIRST: Final = Order(-1, -1)


def orders(case: AuditCase) -> Iterator[AuditFinding]:
    """Per node, boot and component: what is begun never lies behind what was seen."""
    seen: dict[tuple[str, str, str], tuple[int, Order]] = {}
    for entry in case.entries:
        if entry.phase not in _EFFECTS:
            continue
        key = entry.node_uid, entry.boot_id, entry.component
        epoch, order = seen.get(key, (0, _FIRST))
        if entry.phase == EntryPhase.STARTED:
            if entry.epoch < epoch:
                yield _begun(entry, f"under epoch {entry.epoch}, after it had seen epoch {epoch}")
            if entry.order < order:
                yield _begun(entry, f"after it had seen the later op {order}")
        seen[key] = max(epoch, entry.epoch), max(order, entry.order)


def token_order(case: AuditCase) -> Iterator[AuditFinding]:
    """Per node and boot: no component begins under a token when another one has a later one."""
    seen: dict[tuple[str, str], tuple[int, str]] = {}
    for entry in sorted(case.entries, key=lambda entry: entry.time):
        if entry.phase != EntryPhase.STARTED or entry.command == CommandKind.IDLE:
            continue
        key = entry.node_uid, entry.boot_id
        token, component = seen.get(key, (0, ""))
        if entry.token < token and component != entry.component:
            yield _begun(entry, f"when {component} was under token {token}")
        if entry.token >= token:
            seen[key] = entry.token, entry.component


class _Span(NamedTuple):
    token: int
    since: float
    until: float


def under_lease(case: AuditCase) -> Iterator[AuditFinding]:
    """Each op that is begun has the token of the Node's lease.

    Who lost his journal begins once more what his slot still says, whatever became of the lease.
    """
    spans: dict[str, list[_Span]] = defaultdict(list)
    for uid, life in case.timeline.nodes.items():
        spans[uid] = list(_spans(case, life))
    first: dict[tuple[str, str, Order], float] = {}
    for entry in case.entries:
        if entry.phase != EntryPhase.STARTED or entry.command == CommandKind.IDLE:
            continue
        if entry.node_uid not in case.timeline.nodes:
            continue
        since = first.setdefault((entry.node_uid, entry.component, entry.order), entry.time)
        begun = [span for span in spans[entry.node_uid] if span.since - SKEW_SECONDS <= entry.time]
        held = [span.token for span in begun if entry.time <= span.until + SKEW_SECONDS]
        if entry.command not in CHANGING_COMMANDS:
            held += [span.token for span in begun[-1:]]
        if entry.token not in held and not _forgotten(case, entry, since):
            now = f"the lease had token {held[-1]}" if held else "the node had no lease"
            yield _begun(entry, f"under token {entry.token} when {now}")


def _forgotten(case: AuditCase, entry: Entry, since: float) -> bool:
    """Whether this agent lost its journal after it had begun this op for the first time."""
    return any(
        (loss.node_uid, loss.component) == (entry.node_uid, entry.component)
        and since <= loss.time < entry.time
        for loss in case.lost_journals
    )


def _spans(case: AuditCase, life: NodeHistory) -> Iterator[_Span]:
    token, since = None, 0.0
    for place, facts in life.states():
        now = facts.lease.token if facts.lease else None
        if now == token:
            continue
        time = case.timeline.time_of(place)
        if token is not None:
            yield _Span(token, since, time)
        token, since = now, time
    if token is not None:
        yield _Span(token, since, float("inf"))


def _begun(entry: Entry, how: str) -> AuditFinding:
    message = f"{entry.component} of {entry.node} began {entry.command} {entry.order} {how}"
    return agent_violation("I2", entry, message)
