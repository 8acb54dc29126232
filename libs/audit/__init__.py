"""Judges whether a journal keeps the promises of docs/invariants.md.

`judge` checks one journal, `isolation` compares two runs of one seed, `unaccounted` checks one
decision. The audit decides nothing itself and does not consult the engine: it compares what was
written with docs/invariants.md and docs/states.md. Pure: no I/O, no clock.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from libs.audit.checks import (
    budget,
    cordons,
    duplicates,
    foreign_fields,
    freshness,
    harm,
    kernel,
    leases,
    orders,
    proof,
    waits,
    write_counts,
)
from libs.audit.checks.case import AuditCase
from libs.audit.checks.isolation import isolation
from libs.audit.checks.waits import unaccounted
from libs.audit.findings import AuditFinding, AuditResult, MissingSource, Violation
from libs.contracts.records import AuditJournal, DeviceHold, LostJournal, PoolFacts

__all__ = [
    "AuditJournal",
    "AuditResult",
    "DeviceHold",
    "LostJournal",
    "PoolFacts",
    "Violation",
    "isolation",
    "judge",
    "unaccounted",
]

_REVISIONS: Final = "revisions"
_ENTRIES: Final = "entries"
_EVENTS: Final = "events"


class _Check(NamedTuple):
    invariant: str
    needs: tuple[str, ...]
    find: Callable[[AuditCase], Iterator[AuditFinding]]


_CHECKS: Final = (
    _Check("I1", (_REVISIONS,), budget.budget),
    _Check("I1", (_REVISIONS,), budget.readiness),
    _Check("I2", (_REVISIONS,), leases.leases),
    _Check("I2", (_ENTRIES,), orders.orders),
    _Check("I2", (_ENTRIES,), orders.token_order),
    _Check("I2", (_REVISIONS, _ENTRIES), orders.under_lease),
    _Check("I3", (_REVISIONS,), proof.proof),
    _Check("I4", (_REVISIONS,), cordons.cordons),
    _Check("I4", (_REVISIONS,), foreign_fields.foreign_fields),
    _Check("I5", (_ENTRIES,), kernel.unloads),
    _Check("I6", (_REVISIONS,), freshness.freshness),
    _Check("I8", (_REVISIONS,), harm.harm),
    _Check("I9", (_EVENTS,), waits.malformed_waits),
    _Check("I9", (_REVISIONS, _EVENTS), waits.missing_waits),
    _Check("I9", (_REVISIONS, _EVENTS), waits.wrong_steps),
    _Check("I9", (_ENTRIES, _EVENTS), waits.wrong_agent_events),
    _Check("I10", (_REVISIONS,), write_counts.writes),
    _Check("I10", (_REVISIONS,), write_counts.conflicts),
    _Check("I10", (_REVISIONS,), write_counts.evictions),
    _Check("I10", (_REVISIONS,), write_counts.kubernetes_events),
    _Check("I11", (_ENTRIES,), duplicates.duplicate_results),
    _Check("I11", (_EVENTS,), duplicates.duplicate_event_ids),
)


def judge(journal: AuditJournal, *, faults: bool = False) -> AuditResult:
    """Return every violation in the journal, ordered by time.

    `faults` says that faults were injected into the run: I10 is then not judged, because it limits
    the writes of an undisturbed run.
    """
    case = AuditCase(journal)
    violations: list[Violation] = []
    unjudged: dict[str, list[str]] = {}
    for check in _CHECKS:
        missing = [source for source in check.needs if getattr(journal, source) is None]
        if faults and check.invariant == "I10":
            missing = ["a run without injected faults"]
        if missing:
            unjudged.setdefault(check.invariant, []).extend(missing)
            continue
        for finding in check.find(case):
            if isinstance(finding, MissingSource):
                unjudged.setdefault(finding.invariant, []).append(finding.source)
            else:
                violations.append(finding)
    violations.sort(key=lambda found: (found.time, found.revision, found.invariant, found.message))
    return AuditResult(
        violations=tuple(violations),
        not_judged={name: ", ".join(dict.fromkeys(sources)) for name, sources in unjudged.items()},
    )
