"""What a journal has of each invariant: how often it was put to the test. Pure.

`libs.audit` says whether an invariant was violated; a verdict about nothing would be worth nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from libs.audit import OF_NO_SINGLE_RUN, TITLES, AuditJournal, AuditResult
from libs.audit.timeline import NodeChange, Timeline
from libs.contracts.events import Event, EventBody, RolloutEvent, WaitEvent
from libs.contracts.journal import Entry, EntryPhase, Revision
from libs.contracts.message import MalformedMessage
from libs.contracts.node import MANAGER, UpgradeState
from libs.contracts.rollout import RolloutPhase
from libs.ctl.text import plural

_PEOPLE: Final = "kubectl"
_UNLOAD: Final = "unload"


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant, the verdict on it, and what the verdict rests on."""

    name: str
    title: str
    verdict: str
    counted: str


def promises(journal: AuditJournal, result: AuditResult) -> tuple[Promise, ...]:
    """Return each invariant with its verdict and with how often it was put to the test."""
    violated = Counter(each.invariant for each in result.violations)
    counts = dict(_counts(journal))
    found: list[Promise] = []
    for name, title in TITLES.items():
        missing = OF_NO_SINGLE_RUN.get(name) or result.not_judged.get(name, "")
        verdict = "kept"
        if violated[name]:
            verdict = f"VIOLATED {violated[name]}x"
        elif missing:
            verdict = "not judged"
        counted = f"requires {missing}" if missing else counts.get(name, "")
        found.append(Promise(name=name, title=title, verdict=verdict, counted=counted))
    return tuple(found)


def promise_lines(found: Sequence[Promise]) -> Iterator[str]:
    """Return a line for each invariant."""
    for each in found:
        yield f"  {each.name:<4} {each.title:<30} {each.verdict:<11} {each.counted}".rstrip()


def _counts(journal: AuditJournal) -> Iterator[tuple[str, str]]:
    revisions, entries = journal.revisions or (), journal.entries or ()
    changes = [
        change for change in Timeline(revisions, journal.start).changes if change.by_scheduler
    ]
    bodies = list(_bodies(journal.events or ()))
    taken_out = f"{plural(sum(map(_takes_out, changes)), 'time')} a node was taken out of service"
    yield "I1", f"{taken_out}, within the limits"
    yield "I2", f"{plural(_count(entries, EntryPhase.STARTED), 'command')} obeyed by agents"
    returns = sum(change.new_state == UpgradeState.UPGRADE_DONE for change in changes)
    yield "I3", f"{plural(returns, 'return')} to service, each on a proof"
    yield (
        "I4",
        f"{plural(_writes_of_people(revisions), 'write')} of people to nodes left as they are",
    )
    unloads = sum(entry.detail.startswith(_UNLOAD) for entry in entries)
    yield "I5", f"the kernel was asked {plural(unloads, 'time')} to unload a driver"
    yield "I6", f"{taken_out}, on current sources"
    halts = sum(
        isinstance(body, RolloutEvent) and body.after == RolloutPhase.HALTED for body in bodies
    )
    targets = {body.target for body in bodies if isinstance(body, RolloutEvent)}
    yield "I8", f"{plural(len(targets), 'rollout')}, {plural(halts, 'halt')}"
    waits = sum(isinstance(body, WaitEvent) and body.code is not None for body in bodies)
    yield "I9", f"{plural(waits, 'wait')}, each with its reason"
    yield "I10", _writes_text(revisions, changes)
    finished = _count(entries, EntryPhase.FINISHED)
    yield "I11", f"{plural(finished, 'result')}, none of them twice"


def _bodies(events: Sequence[Event]) -> Iterator[EventBody]:
    for event in events:
        try:
            yield event.open()
        except MalformedMessage:
            continue


def _takes_out(change: NodeChange) -> bool:
    return change.after.cordoned and not change.before.cordoned


def _count(entries: Sequence[Entry], phase: EntryPhase) -> int:
    return sum(entry.phase == phase for entry in entries)


def _writes_of_people(revisions: Sequence[Revision]) -> int:
    return sum(
        each.kind == "Node" and each.manager.startswith(_PEOPLE) and bool(each.changed)
        for each in revisions
    )


def _writes_text(revisions: Sequence[Revision], changes: Sequence[NodeChange]) -> str:
    writes = sum(
        each.kind == "Node" and each.manager == MANAGER and bool(each.changed) for each in revisions
    )
    attempts = sum(
        change.new_state in (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
        for change in changes
    )
    each = f", {writes / attempts:.1f} for each of {attempts} attempts" if attempts else ""
    return f"{plural(writes, 'write')} to nodes{each}"
