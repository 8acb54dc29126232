"""I9: every lagging node has a reason, and events agree with the API server and the agents."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from libs.audit.case import (
    JOURNAL,
    STALE_SECONDS,
    AuditCase,
    AuditFinding,
    MissingSource,
    Violation,
    event_violation,
)
from libs.contracts.commands import Order
from libs.contracts.events import (
    CommandEvent,
    Event,
    EventBody,
    EvidenceEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.contracts.node import UpgradeState
from libs.contracts.reports import Outcome

_YEAR: Final = 365 * 86_400.0
"""A wait older than this has no valid `since`."""

_NO_END: Final = "has no end of that op"
_IN_PLACE: Final = frozenset({UpgradeState.UNKNOWN.value, UpgradeState.UPGRADE_DONE.value})


def malformed_waits(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that every wait has a known code, details, a `since`, and names what can end it."""
    for event, body in case.decoded_events:
        if not isinstance(body, WaitEvent) or body.code is None:
            continue
        if missing := _missing_fields(body, at=event.at, put_back=case.clocks.put_back()):
            yield event_violation("I9", event, f"the wait of {event.node} lacks {missing}")


def _missing_fields(wait: WaitEvent, *, at: float, put_back: float = 0.0) -> str:
    """Return the parts that a wait lacks at this time."""
    fields = {
        f"a known code ({wait.code!s})": wait.code is not None and wait.code.is_known,
        "details": wait.detail,
        "a since": at - _YEAR < wait.since <= at + put_back,
        "an owner who can end it": wait.who,
    }
    return ", ".join(field for field, is_present in fields.items() if not is_present)


def unaccounted(
    nodes: Iterable[str],
    waiting: Mapping[str, WaitEvent],
    acting: Collection[str],
    *,
    at: float,
) -> Iterator[Violation]:
    """Check one decision: each node not in place, by name, has a wait or an effect in flight."""
    for node in nodes:
        problem = ""
        if node in waiting:
            if missing := _missing_fields(waiting[node], at=at):
                problem = f"its wait lacks {missing}"
        elif node not in acting:
            problem = "has neither a wait nor an effect in flight"
        if problem:
            message = f"{node} is not in place, and {problem}"
            yield Violation(invariant="I9", node=node, time=at, message=message)


def missing_waits(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that a node not in place, and unchanged for a while at the end, has a wait."""
    waiting = {
        event.node: body.code is not None
        for event, body in case.decoded_events
        if isinstance(body, WaitEvent)
    }
    time_of = case.timeline.time_of
    written = {change.node.uid: time_of(change.position) for change in case.writes}
    end = case.timeline.end_time
    for uid, node in case.timeline.nodes.items():
        unchanged = written.get(uid, float("inf")) < end - STALE_SECONDS
        if unchanged and node.latest.state not in _IN_PLACE and not waiting.get(node.name):
            message = f"{node.name} is {node.latest.state}, and no event gives the reason"
            yield Violation(invariant="I9", node=node.name, time=end, message=message)


def wrong_steps(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that each step event names the revision that shows the step."""
    by_revision = {
        change.revision.revision: change for change in case.writes if change.revision.revision
    }
    for event, body in case.decoded_events:
        if not isinstance(body, StepEvent):
            continue
        change = by_revision.get(int(body.revision)) if body.revision.isdigit() else None
        problem = ""
        if change is None or change.node.name != event.node:
            named = body.revision or "none"
            problem = f"names revision {named}, which is no write of ours to that Node"
        elif change.after.state != body.after:
            problem = f"revision {body.revision} shows {change.after.state or 'no state'}"
        if problem:
            claim = f"the event claims {event.node} is {body.after or 'without a state'}"
            yield event_violation("I9", event, f"{claim}, but {problem}")


def wrong_agent_events(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that the outcomes in events are outcomes in the journals of the agents.

    An op whose journal was lost is repeated, and may end once more and otherwise.
    """
    unread: set[str] = set()
    journaled: dict[tuple[str, str, Order], set[str]] = defaultdict(set)
    for entry in case.entries:
        if entry.phase == EntryPhase.FINISHED and entry.result:
            op = entry.node_uid, entry.component, entry.order
            journaled[op].add(entry.result.outcome.value)
    for event, body in case.decoded_events:
        claimed = _outcome(event, body)
        if claimed is None or not isinstance(body, CommandEvent | EvidenceEvent):
            continue
        if not case.has_journal(event.node_uid, event.writer, event.at - STALE_SECONDS):
            unread.add(f"{JOURNAL} {event.writer} on {event.node}")
            continue
        op = event.node_uid, event.writer, Order(body.token, body.op)
        actual = journaled.get(op, ())
        if claimed not in actual:
            claim = (
                f"{event.writer} of {event.node} reported op {body.token}.{body.op} as {claimed}"
            )
            shown = f"records {' and '.join(sorted(actual))}" if actual else _NO_END
            yield event_violation("I9", event, f"{claim}, but its journal {shown}")
    yield from (MissingSource(invariant="I9", source=each) for each in sorted(unread))


def _outcome(event: Event, body: EventBody) -> str | None:
    if isinstance(body, CommandEvent) and body.phase == EntryPhase.FINISHED:
        return body.outcome
    if isinstance(body, EvidenceEvent) and body.passed and event.writer == Writer.VALIDATOR:
        return Outcome.DONE.value
    return None
