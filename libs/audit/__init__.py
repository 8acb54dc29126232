"""The audit: what a journal says of our promises, and where one was broken.

`judge` looks at one journal, `compare` at two runs of one seed, `unaccounted` at one decision. Here
must not live: anything that decides. The engine is not asked what it meant; what it wrote is held
against docs/invariants.md and docs/states.md. Pure: no I/O, no clock.
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
    of: Callable[[AuditCase], Iterator[AuditFinding]]


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
    """Every violation that shows, in the order of time; `faults`: some were injected, so I10, which
    counts what is written when nothing goes wrong, is left out.
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
        for finding in check.of(case):
            if isinstance(finding, MissingSource):
                unjudged.setdefault(finding.invariant, []).append(finding.source)
            else:
                violations.append(finding)
    violations.sort(key=lambda one: (one.time, one.revision, one.invariant, one.message))
    return AuditResult(
        violations=tuple(violations),
        not_judged={name: ", ".join(dict.fromkeys(lacks)) for name, lacks in unjudged.items()},
    )
