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
    harm,
    kernel,
    leases,
    orders,
    others,
    proof,
    repetition,
    sight,
    silence,
    thrift,
)
from libs.audit.checks.case import Case
from libs.audit.checks.sickness import compare
from libs.audit.checks.silence import unaccounted
from libs.audit.findings import Finding, Lack, Verdict, Violation
from libs.contracts.records import Forgot, Held, Journal, PoolFacts

__all__ = [
    "Forgot",
    "Held",
    "Journal",
    "PoolFacts",
    "Verdict",
    "Violation",
    "compare",
    "judge",
    "unaccounted",
]

_REVISIONS: Final = "revisions"
_ENTRIES: Final = "entries"
_EVENTS: Final = "events"


class _Check(NamedTuple):
    invariant: str
    needs: tuple[str, ...]
    of: Callable[[Case], Iterator[Finding]]


_CHECKS: Final = (
    _Check("I1", (_REVISIONS,), budget.budget),
    _Check("I1", (_REVISIONS,), budget.readiness),
    _Check("I2", (_REVISIONS,), leases.leases),
    _Check("I2", (_ENTRIES,), orders.orders),
    _Check("I2", (_ENTRIES,), orders.tokens),
    _Check("I2", (_REVISIONS, _ENTRIES), orders.under_lease),
    _Check("I3", (_REVISIONS,), proof.proof),
    _Check("I4", (_REVISIONS,), cordons.cordons),
    _Check("I4", (_REVISIONS,), others.others),
    _Check("I5", (_ENTRIES,), kernel.unloads),
    _Check("I6", (_REVISIONS,), sight.sight),
    _Check("I8", (_REVISIONS,), harm.harm),
    _Check("I9", (_EVENTS,), silence.waits),
    _Check("I9", (_REVISIONS, _EVENTS), silence.silence),
    _Check("I9", (_REVISIONS, _EVENTS), silence.steps),
    _Check("I9", (_ENTRIES, _EVENTS), silence.agents),
    _Check("I10", (_REVISIONS,), thrift.writes),
    _Check("I10", (_REVISIONS,), thrift.conflicts),
    _Check("I10", (_REVISIONS,), thrift.evictions),
    _Check("I10", (_REVISIONS,), thrift.shown),
    _Check("I11", (_ENTRIES,), repetition.results),
    _Check("I11", (_EVENTS,), repetition.ids),
)


def judge(journal: Journal, *, faults: bool = False) -> Verdict:
    """Every violation that shows, in the order of time; `faults`: some were injected, so I10, which
    counts what is written when nothing goes wrong, is left out.
    """
    case = Case(journal)
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
            if isinstance(finding, Lack):
                unjudged.setdefault(finding.invariant, []).append(finding.source)
            else:
                violations.append(finding)
    violations.sort(key=lambda one: (one.time, one.revision, one.invariant, one.message))
    return Verdict(
        violations=tuple(violations),
        unjudged={name: ", ".join(dict.fromkeys(lacks)) for name, lacks in unjudged.items()},
    )
