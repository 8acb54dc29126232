"""I5 and I11: the ops in the journals of the agents.

I5: only the kernel decides whether a driver can be unloaded, and its answer is final. The driver
agent journals each new answer of the kernel as a step of its op. The detail is `unload: ` and
one word, optionally followed by a blank or comma and more text: `ok` (the modules are unloaded),
`busy` (EBUSY) or `none` (no module was loaded).

I11: each op has one result, in the order of ops, despite lost messages, repeats and restarts.
"""

import re
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from libs.audit.case import AuditCase, AuditFinding, agent_violation, event_violation
from libs.contracts.commands import Order
from libs.contracts.events import Event
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.records import DeviceHold
from libs.contracts.reports import Outcome

_UNLOADED: Final = "ok"
_BUSY: Final = "busy"
_ANSWERS: Final = (_UNLOADED, _BUSY, "none")
_UNLOAD: Final = re.compile(r"unload: *([a-z-]+)")

_JournalKey = tuple[str, str, int]
"""Node uid, component, and the number of journals that the component had lost before."""


def unloads(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that after EBUSY an op only unloads again or fails, and never succeeds."""
    answers: dict[tuple[str, Order], str] = {}
    holds: dict[str, list[DeviceHold]] = defaultdict(list)
    for hold in case.journal.device_holds:
        holds[hold.node_uid].append(hold)
    for entry in case.entries:
        if entry.component != Writer.DRIVER:
            continue
        key = entry.node_uid, entry.order
        problems: list[str] = []
        if entry.phase == EntryPhase.STARTED:
            answers.pop(key, None)  # a resumed op starts over
        elif match := _UNLOAD.match(entry.detail):
            answers[key] = match[1]
            put_back = case.clocks.put_back(entry.node_uid)
            problems += _answer_problems(entry, match[1], holds[entry.node_uid], put_back)
        elif answers.get(key) == _BUSY and _continues(entry):
            del answers[key]
            step = entry.detail or "ended as done"
            problems.append(f"continued ({step}) although the kernel had answered busy")
        for problem in problems:
            op = f"{entry.command} {entry.order}"
            message = f"the driver agent of {entry.node}, at {op}, {problem}"
            yield agent_violation("I5", entry, message)


def _continues(entry: Entry) -> bool:
    if entry.phase == EntryPhase.FINISHED:
        return entry.result is not None and entry.result.outcome == Outcome.DONE
    if entry.phase != EntryPhase.STEP or not entry.detail:
        return False  # without a detail it only says that a command was read, as of a new leader
    return not entry.detail.startswith("unload")


def _answer_problems(
    entry: Entry, answer: str, holds: list[DeviceHold], put_back: float
) -> Iterator[str]:
    if answer not in _ANSWERS:
        yield f"unloaded as {answer!r}, which is no answer of the kernel"
    for hold in holds if answer == _UNLOADED else ():
        until = inf if hold.until is None else hold.until
        if hold.since + put_back < entry.time < until - put_back:
            yield f"unloaded the driver while {hold.holder or 'a process'} held the device"


def duplicate_results(case: AuditCase) -> Iterator[AuditFinding]:
    """Check per node uid and component that each started op ends once, in the order of ops.

    A lost journal starts a new count, because the agent cannot know the results before it.
    """
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for loss in case.journal.lost_journals:
        insort(losses[loss.node_uid, loss.component], loss.time)
    finished = dict[_JournalKey, Order]()
    started: dict[_JournalKey, set[Order]] = defaultdict(set)
    for entry in case.entries:
        agent = entry.node_uid, entry.component
        lost = bisect_right(losses.get(agent, []), entry.time)
        key = *agent, lost
        last, problem = finished.get(key), ""
        if entry.phase == EntryPhase.STARTED:
            if entry.order == last:
                problem = "started again after it had ended"
            started[key].add(entry.order)
        elif entry.phase == EntryPhase.FINISHED:
            if last is not None and entry.order <= last:
                again = "again" if entry.order == last else f"after the later op {last}"
                problem = f"ended {again}"
            # An op may have started before the journal begins.
            elif key in started and entry.order not in started[key]:
                problem = "ended without having started"
            finished[key] = max(last or entry.order, entry.order)
        # Only the time tells whether an entry is from before a loss.
        is_timed = agent in losses and case.clocks.put_back(entry.node_uid)
        if problem and not is_timed:
            op = f"{entry.command} {entry.order}"
            message = f"{entry.component} of {entry.node}: {op} {problem}"
            yield agent_violation("I11", entry, message)


def duplicate_event_ids(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that events of the same id are equal."""
    events = dict[str, Event]()
    for event in case.events:
        first = events.setdefault(event.id, event)
        if first != event:
            message = f"event {event.id} has two contents: {first.message!r} and {event.message!r}"
            yield event_violation("I11", event, message)
