"""I9: nothing waits in silence, and what we say of a node is what the API server and agents say."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from libs.audit.checks.case import STALE_SECONDS, AuditCase
from libs.audit.findings import AuditFinding, Violation
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
"""A wait that is older was never told when it began."""

_IN_PLACE: Final = frozenset({UpgradeState.UNKNOWN.value, UpgradeState.UPGRADE_DONE.value})


def malformed_waits(case: AuditCase) -> Iterator[AuditFinding]:
    """Every wait has a code that is known, details, a since, and somebody who can end it."""
    for event, body in case.decoded_events:
        if isinstance(body, WaitEvent) and body.code is not None:
            missing = list(missing_fields(body, at=event.at))
            if missing:
                yield _wrong(event, f"{event.node} waits without {', '.join(missing)}")


def missing_fields(wait: WaitEvent, *, at: float) -> Iterator[str]:
    """What a wait owes a person who reads it at this time."""
    if wait.code is None or not wait.code.is_known:
        yield f"a known code ({wait.code!s})"
    if not wait.detail:
        yield "details"
    if not at - _YEAR < wait.since <= at:
        yield "a since"
    if not wait.who:
        yield "anybody who can end it"


def unaccounted(
    not_in_place: Iterable[str],
    waiting: Mapping[str, WaitEvent],
    acting: Collection[str],
    *,
    at: float,
) -> Iterator[Violation]:
    """Of one decision: each node not in place, by name, has a wait or an effect in flight."""
    for node in not_in_place:
        missing: list[str] = []
        if node in waiting:
            missing = list(missing_fields(waiting[node], at=at))
        elif node not in acting:
            missing = ["a reason, and nothing is done about it"]
        if missing:
            message = f"{node} is not in place, without {', '.join(missing)}"
            yield Violation(invariant="I9", node=node, time=at, message=message)


def missing_waits(case: AuditCase) -> Iterator[AuditFinding]:
    """At the end of the journal: who is not in place and was left alone for a while, waits."""
    waiting: dict[str, bool] = {}
    for event, body in case.decoded_events:
        if isinstance(body, WaitEvent):
            waiting[event.node] = body.code is not None
    written = {change.node.uid: change.revision.time for change in case.writes}
    ends = case.timeline.end_time
    for uid, life in case.timeline.nodes.items():
        alone = written.get(uid, float("inf")) < ends - STALE_SECONDS
        if life.latest.state in _IN_PLACE or not alone:
            continue
        if not waiting.get(life.name):
            message = f"{life.name} is {life.latest.state}, and no event says why it stays so"
            yield Violation(invariant="I9", node=life.name, time=ends, message=message)


def wrong_steps(case: AuditCase) -> Iterator[AuditFinding]:
    """A step names the revision that shows it."""
    shown = {change.revision.revision: change for change in case.writes if change.revision.revision}
    for event, body in case.decoded_events:
        if not isinstance(body, StepEvent):
            continue
        change = shown.get(int(body.revision)) if body.revision.isdigit() else None
        told = f"{event.node} is {body.after or 'without a state'}, it says"
        if change is None or change.node.name != event.node:
            said = body.revision or "none"
            yield _wrong(event, f"{told}, but it names revision {said}, which is no such write")
        elif change.after.state != body.after:
            shows = change.after.state or "no state"
            yield _wrong(event, f"{told}, but revision {body.revision} shows {shows}")


def wrong_agent_events(case: AuditCase) -> Iterator[AuditFinding]:
    """What a component says of an op is what it wrote down."""
    ended = {
        (entry.node_uid, entry.component, *entry.order): entry.result.outcome
        for entry in case.entries
        if entry.phase == EntryPhase.FINISHED and entry.result
    }
    for event, body in case.decoded_events:
        said = _outcome(event, body)
        if said is None or not isinstance(body, CommandEvent | EvidenceEvent):
            continue
        known = ended.get((event.node_uid, event.writer, body.token, body.op))
        if known != said:
            wrote = f"it wrote down {known.value}" if known else "it wrote down no end of it"
            op = f"{event.writer} of {event.node} says {said} of {body.token}.{body.op}"
            yield _wrong(event, f"{op}, and {wrote}")


def _outcome(event: Event, body: EventBody) -> str | None:
    if isinstance(body, CommandEvent) and body.phase == EntryPhase.FINISHED:
        return body.outcome
    if isinstance(body, EvidenceEvent) and body.passed and event.writer == Writer.VALIDATOR:
        return Outcome.DONE.value
    return None


def _wrong(event: Event, message: str) -> Violation:
    return Violation(invariant="I9", node=event.node, time=event.at, message=message)
