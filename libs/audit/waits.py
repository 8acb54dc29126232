"""I9: every lagging node has a reason, and events agree with the API server and the agents."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from libs.audit.case import STALE_SECONDS, AuditCase, AuditFinding, Violation
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

_IN_PLACE: Final = frozenset({UpgradeState.UNKNOWN.value, UpgradeState.UPGRADE_DONE.value})


def malformed_waits(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that every wait has a known code, details, a `since`, and who can end it."""
    for event, body in case.decoded_events:
        if isinstance(body, WaitEvent) and body.code is not None:
            missing = list(missing_fields(body, at=event.at))
            if missing:
                yield _violation(event, f"the wait of {event.node} lacks {', '.join(missing)}")


def missing_fields(wait: WaitEvent, *, at: float) -> Iterator[str]:
    """Return what a wait lacks for a reader at this time."""
    if wait.code is None or not wait.code.is_known:
        yield f"a known code ({wait.code!s})"
    if not wait.detail:
        yield "details"
    if not at - _YEAR < wait.since <= at:
        yield "a since"
    if not wait.who:
        yield "an owner who can end it"


def unaccounted(
    nodes: Iterable[str],
    waiting: Mapping[str, WaitEvent],
    acting: Collection[str],
    *,
    at: float,
) -> Iterator[Violation]:
    """Check one decision: each node not in place, by name, has a wait or an effect in flight."""
    for node in nodes:
        message = ""
        if node in waiting:
            if missing := list(missing_fields(waiting[node], at=at)):
                message = f"{node} is not in place, and its wait lacks {', '.join(missing)}"
        elif node not in acting:
            message = f"{node} is not in place, and has neither a wait nor an effect in flight"
        if message:
            yield Violation(invariant="I9", node=node, time=at, message=message)


def missing_waits(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that a node not in place, and unchanged for a while at the end, has a wait."""
    waiting: dict[str, bool] = {}
    for event, body in case.decoded_events:
        if isinstance(body, WaitEvent):
            waiting[event.node] = body.code is not None
    written = {change.node.uid: change.revision.time for change in case.writes}
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
        claim = f"the event claims {event.node} is {body.after or 'without a state'}"
        if change is None or change.node.name != event.node:
            named = body.revision or "none"
            yield _violation(
                event,
                f"{claim}, but names revision {named}, which is no write of ours to that Node",
            )
        elif change.after.state != body.after:
            actual = change.after.state or "no state"
            yield _violation(event, f"{claim}, but revision {body.revision} shows {actual}")


def wrong_agent_events(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that the outcomes in events are the outcomes in the journals of the agents."""
    journaled = {
        (entry.node_uid, entry.component, *entry.order): entry.result.outcome
        for entry in case.entries
        if entry.phase == EntryPhase.FINISHED and entry.result
    }
    for event, body in case.decoded_events:
        claimed = _outcome(event, body)
        if claimed is None or not isinstance(body, CommandEvent | EvidenceEvent):
            continue
        actual = journaled.get((event.node_uid, event.writer, body.token, body.op))
        if actual != claimed:
            entry = (
                f"its journal says {actual.value}"
                if actual
                else "its journal has no end of that op"
            )
            op = f"{event.writer} of {event.node} reported op {body.token}.{body.op} as {claimed}"
            yield _violation(event, f"{op}, but {entry}")


def _outcome(event: Event, body: EventBody) -> str | None:
    if isinstance(body, CommandEvent) and body.phase == EntryPhase.FINISHED:
        return body.outcome
    if isinstance(body, EvidenceEvent) and body.passed and event.writer == Writer.VALIDATOR:
        return Outcome.DONE.value
    return None


def _violation(event: Event, message: str) -> Violation:
    return Violation(invariant="I9", node=event.node, time=event.at, message=message)
