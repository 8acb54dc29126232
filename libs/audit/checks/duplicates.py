"""I11: no op's result is observed twice or out of order, whatever is lost, repeated or killed."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator

from libs.audit.checks.case import AuditCase, agent_violation
from libs.audit.findings import AuditFinding, Violation
from libs.contracts.commands import Order
from libs.contracts.events import Event
from libs.contracts.journal import Entry, EntryPhase

_Memory = tuple[str, str, int]
_Order = Order
_Event = Event


def duplicate_results(case: AuditCase) -> Iterator[AuditFinding]:
    """Per node uid and component: one end for each op that was begun, in the order of ops.

    As long as its journal was not lost: from then on nobody can know that it had ended.
    """
    forgot: dict[tuple[str, str], list[float]] = defaultdict(list)
    for loss in case.lost_journals:
        insort(forgot[loss.node_uid, loss.component], loss.time)
    finished: dict[_Memory, _Order] = {}
    started: dict[_Memory, set[_Order]] = {}
    for entry in case.entries:
        losses = forgot.get((entry.node_uid, entry.component), [])
        key = entry.node_uid, entry.component, bisect_right(losses, entry.time)
        if entry.phase == EntryPhase.STARTED:
            if entry.order == finished.get(key):
                yield _did(entry, "began again, after it had ended")
            started.setdefault(key, set()).add(entry.order)
        elif entry.phase == EntryPhase.FINISHED:
            last = finished.get(key)
            if last is not None and entry.order <= last:
                again = "again" if entry.order == last else f"after the later op {last}"
                yield _did(entry, f"ended {again}")
            # What began before the journal does may end in it.
            elif key in started and entry.order not in started[key]:
                yield _did(entry, "ended without having begun")
            finished[key] = max(last or entry.order, entry.order)


def _did(entry: Entry, what: str) -> AuditFinding:
    message = f"{entry.component} of {entry.node}: {entry.command} {entry.order} {what}"
    return agent_violation("I11", entry, message)


def duplicate_event_ids(case: AuditCase) -> Iterator[AuditFinding]:
    """An event that comes twice is the same both times."""
    known: dict[str, _Event] = {}
    for event in case.events:
        first = known.setdefault(event.id, event)
        if first != event:
            message = f"event {event.id} says two things: {first.message!r} and {event.message!r}"
            yield Violation(invariant="I11", node=event.node, time=event.at, message=message)
