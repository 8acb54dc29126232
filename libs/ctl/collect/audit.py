"""`sluice audit`: judge a live cluster from audit logs, events, and the agents' journals.

The log begins at some time, and not every source is at hand. What cannot be judged is named, and
never reported as kept.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.audit import OF_NO_SINGLE_RUN, TITLES, AuditJournal, Violation, judge
from libs.audit.agents import AgentAudit
from libs.audit.clocks import clocks_ahead
from libs.audit.partial import Coverage
from libs.contracts.events import Event, EventKind
from libs.contracts.journal import Revision
from libs.ctl.answers import Audit, AuditedInvariant
from libs.ctl.collect.journals import JournalReader, JournalsRead
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.text import plural
from libs.fleet.status import Source
from libs.kube.auditlog import AuditLogConverter, CorruptAuditLog

_SOURCES: Final = {
    "revisions": "--audit-log",
    "entries": "agents' journals (--nats)",
    "some entries": "missing or cut journals",
    "earlier entries": "journals that begin well before the events",
    "events": "events of the bus (--nats)",
    "a run without injected faults": "a run without faults",
}
_PAGE: Final = "docs/invariants.md#audit-log"
_GET_LOG: Final = (
    "let the API server write one (its flags --audit-policy-file and --audit-log-path) and give the"
    f" file as --audit-log FILE; {_PAGE} has the policy, and says where managed clusters have their"
    " log"
)
_SETTLING: Final = 60.0
"""Seconds at the end of the log within which an event may name a write that is not logged yet."""
_SHOWN: Final = 100
_BY_JOURNALS: Final = frozenset({"I2", "I5", "I9", "I11"})
"""The invariants of which journals show a part without any write."""


class _Line(msgspec.Struct):
    """The part of a line of an audit log by which lines are ordered."""

    stage_timestamp: str = msgspec.field(name="stageTimestamp", default="")


async def audit(
    access: Access,
    logs: Sequence[Path],
    *,
    on_progress: Callable[[int, int], None] = lambda _read, _all: None,
) -> Audit:
    """Judge what the logs, the bus and the agents show; `on_progress` gets nodes read and all."""
    revisions = read_logs(logs) if logs else None
    events = await _events(access)
    if isinstance(events, Failure) and revisions is None:
        problem = (
            f"there is nothing to judge: no --audit-log FILE is given ({_PAGE} says how to get it),"
            f" and {events}"
        )
        raise Failure(events.code, problem)
    names = [str(log) for log in logs]
    if isinstance(events, Failure):
        sources = AuditSources(revisions, None, logs=names, events_problem=str(events))
        return sources.verdict(JournalsRead(problem=str(events)))
    sources = AuditSources(
        revisions,
        tuple(event for _, event in events),
        logs=names,
        events_problem="",
        clocks_ahead=clocks_ahead(events),
    )
    return sources.verdict(await _journals(access, sources.agents, on_progress))


def read_logs(logs: Sequence[Path]) -> tuple[Revision, ...]:
    """Return the writes of all logs: each API server has a log, in files one after another."""
    converter = AuditLogConverter(", ".join(map(str, logs)))
    revisions: list[Revision] = []
    try:
        for line in heapq.merge(*map(_lines, logs), key=_time_of):
            revisions += converter.feed(line)
    except CorruptAuditLog as error:
        raise Failure(ExitCode.WRONG_ARGUMENTS, str(error)) from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        problem = f"the audit log {error.filename} cannot be read: {why}"
        raise Failure(ExitCode.NOT_FOUND, problem) from error
    revisions += converter.flush()
    if not revisions:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"{', '.join(map(str, logs))}: no write is logged; the audit policy has to log writes"
            f" to Nodes, Pods, Events, Rollouts and policies at level RequestResponse: {_PAGE}",
        )
    return tuple(revisions)


def _lines(log: Path) -> Iterator[bytes]:
    with log.open("rb") as file:
        for line in file:
            yield line if line.endswith(b"\n") else line + b"\n"


def _time_of(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=_Line).stage_timestamp
    except msgspec.DecodeError:
        return ""  # refused with its number by the converter


async def _events(access: Access) -> tuple[tuple[float, Event], ...] | Failure:
    """Return all events, each with the time at which the stream got it, or why there are none."""
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.ctl.bus import open_bus
    from libs.ctl.failures import bus_failure

    try:
        async with open_bus(access) as bus, read_events(bus=bus, cluster=access.cluster) as stored:
            found = [
                (each.time, each.event) async for each in stored if isinstance(each, RecordedEvent)
            ]
    except Failure as failure:
        return failure
    except BusError as error:
        return bus_failure(error)
    return tuple(found)


async def _journals(
    access: Access, agents: AgentAudit, on_progress: Callable[[int, int], None]
) -> JournalsRead:
    """Let the journals of the agents be judged; events were read before, so that they are older."""
    from libs.contracts.queries import JournalAnswer, QueryVerb
    from libs.ctl.bus import open_scheduler

    try:
        async with open_scheduler(access) as scheduler:
            reader = JournalReader(
                lambda query: scheduler.ask(query, QueryVerb.JOURNAL, JournalAnswer),
                agents,
                on_progress=on_progress,
            )
            return await reader.run()
    except Failure as error:
        return JournalsRead(problem=str(error))


def judged(
    revisions: tuple[Revision, ...] | None,
    events: tuple[Event, ...] | None,
    *,
    logs: Sequence[str],
    events_problem: str,
) -> Audit:
    """Return the verdict on each invariant without the journals of the agents."""
    sources = AuditSources(revisions, events, logs=logs, events_problem=events_problem)
    return sources.verdict(JournalsRead(problem="they were not asked for"))


class AuditSources:
    """What is judged: the log and the events at once, and the journals node by node."""

    def __init__(
        self,
        revisions: tuple[Revision, ...] | None,
        events: tuple[Event, ...] | None,
        *,
        logs: Sequence[str],
        events_problem: str,
        clocks_ahead: Mapping[str, float] | None = None,
    ) -> None:
        if revisions is None and events is None:
            raise Failure(
                ExitCode.WRONG_ARGUMENTS,
                f"there is nothing to judge: give --audit-log FILE ({_PAGE} says how to get it), or"
                f" NATS for the events ({events_problem})",
            )
        self._revisions, self._logs, self._events_problem = revisions, logs, events_problem
        self._events = _comparable(events, revisions)
        self._coverage = Coverage(revisions or ())
        self._clocks_ahead = clocks_ahead or {}
        self.agents = AgentAudit(revisions, events, self._coverage, self._clocks_ahead)
        """Judges the journals."""

    def verdict(self, journals: JournalsRead) -> Audit:
        """Return the verdict on each invariant, after `agents` has judged these journals."""
        journal = AuditJournal(
            revisions=self._revisions, events=self._events, clocks_ahead=self._clocks_ahead
        )
        result = judge(journal, faults=True)
        found = {each for each in result.violations if self._shows(each)} | self.agents.violations
        violations: dict[str, list[str]] = {}
        for each in sorted(found, key=lambda each: (each.time, each.revision, each.message)):
            violations.setdefault(each.invariant, []).append(each.message)
        return Audit(
            invariants=tuple(
                self._invariant(
                    name, violations.get(name, ()), result.not_judged.get(name, ""), journals
                )
                for name in TITLES
            ),
            sources=self._sources(journals),
            unjudged_nodes=self._coverage.unjudged,
            unread_journals=tuple(journals.unread),
            since=self._revisions[0].time if self._revisions else None,
            until=self._revisions[-1].time if self._revisions else None,
        )

    def _invariant(
        self, name: str, violations: Sequence[str], missing: str, journals: JournalsRead
    ) -> AuditedInvariant:
        elsewhere = OF_NO_SINGLE_RUN.get(name)
        return AuditedInvariant(
            name=name,
            violations=len(violations),
            first=tuple(violations[:_SHOWN]),
            not_judged=elsewhere or _missing(missing, journals, self.agents.missing[name]),
            judged=elsewhere is None and _is_judged(name, self._revisions, self._events, journals),
        )

    def _sources(self, journals: JournalsRead) -> tuple[Source, ...]:
        log = Source(
            name=", ".join(self._logs) or "the API server's audit log",
            gives="writes" if self._revisions is None else f"{len(self._revisions)} writes",
            problem="" if self._logs else "no --audit-log was given",
            remedy="" if self._logs else _GET_LOG,
        )
        bus = Source(
            name="NATS",
            gives="events" if self._events is None else f"{len(self._events)} events",
            problem=self._events_problem,
        )
        agents = Source(
            name="their agents",
            gives=f"{journals.entries} entries in {plural(journals.journals, 'journal')}"
            f" of {plural(journals.nodes, 'node')}"
            if journals.journals or not journals.problem
            else "journals",
            problem=journals.problem,
        )
        return log, bus, agents

    def _shows(self, violation: Violation) -> bool:
        return self._revisions is None or self._coverage.shows(violation)


def _comparable(
    events: tuple[Event, ...] | None, revisions: tuple[Revision, ...] | None
) -> tuple[Event, ...] | None:
    """Leave out steps that the log does not cover: it would show no write for them."""
    if events is None or not revisions:
        return events
    first, last = revisions[0].time, revisions[-1].time - _SETTLING
    return tuple(
        each for each in events if each.kind is not EventKind.STEP or first <= each.at <= last
    )


def _missing(sources: str, journals: JournalsRead, parts: Iterable[str]) -> str:
    """Return the missing sources in words for people.

    `parts` are journals without which a part was not judged, though the others were.
    """
    names = [name for name in sources.split(", ") if name]
    if journals.journals:
        names = [name for name in names if name != "entries"]
        if journals.problem or journals.unread:
            names.append("some entries")
        elif parts:
            names.append("earlier entries")
    return "; ".join(dict.fromkeys(_SOURCES.get(name, name) for name in names))


def _is_judged(
    name: str,
    revisions: tuple[Revision, ...] | None,
    events: tuple[Event, ...] | None,
    journals: JournalsRead,
) -> bool:
    """Whether some check of an invariant had its sources."""
    by_events = name in ("I9", "I11") and events is not None
    by_writes = name not in ("I5", "I9", "I11") and revisions is not None
    by_journals = name in _BY_JOURNALS and journals.journals > 0
    return by_events or by_writes or by_journals
