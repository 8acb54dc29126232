"""I11: each op has one result, in the order of ops, whatever is lost, repeated or killed."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator

from libs.audit.checks.case import AuditCase, agent_violation
from libs.audit.findings import AuditFinding, Violation
from libs.contracts.commands import Order
from libs.contracts.events import Event
from libs.contracts.journal import Entry, EntryPhase

_JournalKey = tuple[str, str, int]
"""Node uid, component, and how many journals that component had lost before."""


def duplicate_results(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node uid and component that each started op ends once, in the order of ops.

    A lost journal starts a new count, because the agent cannot know the results before it.
    """
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for loss in case.lost_journals:
        insort(losses[loss.node_uid, loss.component], loss.time)
    finished = dict[_JournalKey, Order]()
    started = dict[_JournalKey, set[Order]]()
    for entry in case.entries:
        lost = bisect_right(losses.get((entry.node_uid, entry.component), []), entry.time)
        key = entry.node_uid, entry.component, lost
        if entry.phase == EntryPhase.STARTED:
            if entry.order == finished.get(key):
                yield _violation(entry, "started again after it had ended")
            started.setdefault(key, set()).add(entry.order)
        elif entry.phase == EntryPhase.FINISHED:
            last = finished.get(key)
            if last is not None and entry.order <= last:
                again = "again" if entry.order == last else f"after the later op {last}"
                yield _violation(entry, f"ended {again}")
            # An op may have started before the journal begins.
            elif key in started and entry.order not in started[key]:
                yield _violation(entry, "ended without having started")
            finished[key] = max(last or entry.order, entry.order)


def _violation(entry: Entry, problem: str) -> AuditFinding:
    message = f"{entry.component} of {entry.node}: {entry.command} {entry.order} {problem}"
    return agent_violation("I11", entry, message)


def duplicate_event_ids(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that events of the same id are equal."""
    events = dict[str, Event]()
    for event in case.events:
        first = events.setdefault(event.id, event)
        if first != event:
            message = f"event {event.id} has two contents: {first.message!r} and {event.message!r}"
            yield Violation(invariant="I11", node=event.node, time=event.at, message=message)
