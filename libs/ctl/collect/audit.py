"""`sluice audit`: judge a live cluster from the API server's audit log and the events of the bus.

The log begins at some time, and not every source is at hand. What cannot be judged is named, and
never reported as kept.
"""

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.audit import AuditJournal, judge
from libs.audit.partial import Coverage
from libs.contracts.events import Event, EventKind
from libs.contracts.journal import Revision
from libs.ctl.answers import Audit, AuditedInvariant, Source
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.kube.auditlog import AuditLogConverter, CorruptAuditLog

INVARIANTS: Final = tuple(f"I{number}" for number in range(1, 13))
_ELSEWHERE: Final = {
    "I7": "two runs to compare, with and without sick nodes: no single cluster has them",
    "I12": "the files of a node before the installation and after the removal",
}
_SOURCES: Final = {
    "revisions": "the audit log of the API server (--audit-log)",
    "entries": "the journals of the agents, which this command does not read yet",
    "events": "the events of the bus (--nats)",
    "a run without injected faults": "a run without faults, for its numbers of writes",
}
_SETTLING: Final = 60.0
"""Seconds at the end of the log within which an event may name a write that is not logged yet."""
_SHOWN: Final = 100


class _Line(msgspec.Struct):
    """The part of a line of an audit log by which lines are ordered."""

    stage_timestamp: str = msgspec.field(name="stageTimestamp", default="")


async def audit(access: Access, logs: Sequence[Path]) -> Audit:
    """Judge what the logs and the bus show."""
    revisions = read_logs(logs) if logs else None
    events, problem = await _events(access)
    return judged(revisions, events, logs=[str(log) for log in logs], events_problem=problem)


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
        raise Failure(ExitCode.NOT_FOUND, f"an audit log cannot be read: {error}") from error
    revisions += converter.flush()
    if not revisions:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"{', '.join(map(str, logs))}: no write is logged; the audit policy has to log writes"
            " to Nodes, Pods, Events, Rollouts and policies at level RequestResponse",
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


async def _events(access: Access) -> tuple[tuple[Event, ...] | None, str]:
    """Return all events of the stream, or None and why."""
    if not access.nats:
        return None, "no address of NATS is given (--nats or SLUICE_NATS_URL)"
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.ctl.asking import open_bus

    try:
        async with open_bus(access) as bus, read_events(bus=bus, cluster=access.cluster) as stored:
            found = [each.event async for each in stored if isinstance(each, RecordedEvent)]
    except (Failure, BusError) as error:
        return None, str(error)
    return tuple(found), ""


def judged(
    revisions: tuple[Revision, ...] | None,
    events: tuple[Event, ...] | None,
    *,
    logs: Sequence[str],
    events_problem: str,
) -> Audit:
    """Return the verdict on each invariant."""
    if revisions is None and events is None:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            "there is nothing to judge: give --audit-log FILE, or NATS for the events"
            f" ({events_problem})",
        )
    seen = _comparable(events, revisions)
    result = judge(AuditJournal(revisions=revisions, events=seen), faults=True)
    coverage = Coverage(revisions or ())
    violations: dict[str, list[str]] = {}
    for each in result.violations:
        if revisions is not None and not coverage.shows(each):
            continue
        violations.setdefault(each.invariant, []).append(each.message)
    return Audit(
        invariants=tuple(
            AuditedInvariant(
                name=name,
                violations=len(violations.get(name, ())),
                first=tuple(violations.get(name, ())[:_SHOWN]),
                not_judged=_ELSEWHERE.get(name) or _missing(result.not_judged.get(name, "")),
                judged=name not in _ELSEWHERE and _is_judged(name, revisions, seen),
            )
            for name in INVARIANTS
        ),
        sources=(
            Source(
                name=", ".join(logs) or "the audit log",
                gives=f"{len(revisions or ())} writes",
                problem="" if logs else "no --audit-log was given",
            ),
            Source(name="NATS", gives=f"{len(seen or ())} events", problem=events_problem),
        ),
        unjudged_nodes=coverage.unjudged,
        since=revisions[0].time if revisions else None,
        until=revisions[-1].time if revisions else None,
    )


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


def _missing(sources: str) -> str:
    """Return the missing sources in words for people."""
    names = [_SOURCES.get(name, name) for name in sources.split(", ") if name]
    return "; ".join(dict.fromkeys(names))


def _is_judged(
    name: str, revisions: tuple[Revision, ...] | None, events: tuple[Event, ...] | None
) -> bool:
    """Whether some check of an invariant had its sources."""
    by_events = name in ("I9", "I11") and events is not None
    by_writes = name not in ("I5", "I9", "I11") and revisions is not None
    return by_events or by_writes
