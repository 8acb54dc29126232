"""Checks whether a journal keeps the invariants of docs/invariants.md.

`judge` checks one journal, `isolation` compares two runs of one seed, `unaccounted` checks one
decision. The audit makes no decisions and does not consult the engine: it compares the writes with
docs/invariants.md and docs/states.md. Pure: no I/O, no clock.

`timeline`, `nodes` and `pools` replay the revisions, once for all checks, into an `AuditCase`. A
check turns the case into findings; the checks of one invariant are in one module.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from libs.audit import (
    budget,
    foreign_fields,
    grants,
    harm,
    leases,
    ops,
    proof,
    startup_taints,
    waits,
    write_counts,
)
from libs.audit.case import AuditCase, AuditFinding, MissingSource, Violation, hidden_orders
from libs.audit.timeline import Timeline
from libs.audit.waits import unaccounted
from libs.contracts.node import UpgradeState
from libs.contracts.records import AuditJournal, DeviceHold, LostJournal, PoolFacts

__all__ = [
    "OF_NO_SINGLE_RUN",
    "TITLES",
    "AuditJournal",
    "AuditResult",
    "DeviceHold",
    "LostJournal",
    "PoolFacts",
    "Violation",
    "isolation",
    "judge",
    "judge_agents",
    "judge_agents_by_writes",
    "unaccounted",
]

TITLES: Final = {
    "I1": "Budget",
    "I2": "One owner",
    "I3": "No return without proof",
    "I4": "Not ours, not touched",
    "I5": "Ask the kernel",
    "I6": "Unseen is not absent",
    "I7": "A sick node delays no other",
    "I8": "Bounded harm",
    "I9": "Nothing waits in silence",
    "I10": "Frugal",
    "I11": "Idempotent everywhere",
    "I12": "Reversible host",
}
"""The invariants, as docs/invariants.md calls them."""
OF_NO_SINGLE_RUN: Final = {
    "I7": "two runs to compare",
    "I12": "a removal of Sluice",
}
"""Invariants that no single run shows, and what shows them."""


class _Check(NamedTuple):
    invariant: str
    needs: tuple[str, ...]
    """The sources, as fields of `AuditJournal`."""
    find: Callable[[AuditCase], Iterator[AuditFinding]]
    with_faults: bool = False
    """Whether a check of I10 holds in a run with injected faults too."""


_CHECKS: Final = (
    _Check("I1", ("revisions",), budget.budget),
    _Check("I1", ("revisions",), budget.readiness),
    _Check("I1", ("revisions",), grants.grants),
    _Check("I2", ("revisions",), leases.leases),
    _Check("I2", (), hidden_orders),
    _Check("I2", ("entries",), leases.orders),
    _Check("I2", ("entries",), leases.epochs),
    _Check("I2", ("entries",), leases.adoption),
    _Check("I2", ("entries",), leases.token_order),
    _Check("I2", ("revisions", "entries"), leases.under_lease),
    _Check("I3", ("revisions",), proof.proof),
    _Check("I4", ("revisions",), foreign_fields.cordons),
    _Check("I4", ("revisions",), foreign_fields.foreign_fields),
    _Check("I4", ("revisions",), startup_taints.startup_taints),
    _Check("I5", ("entries",), ops.unloads),
    _Check("I6", ("revisions",), budget.freshness),
    _Check("I8", ("revisions",), harm.harm),
    _Check("I9", ("events",), waits.malformed_waits),
    _Check("I9", ("revisions", "events"), waits.missing_waits),
    _Check("I9", ("revisions", "events"), waits.wrong_steps),
    _Check("I9", ("entries", "events"), waits.wrong_agent_events),
    _Check("I10", ("revisions",), write_counts.writes),
    _Check("I10", ("revisions",), write_counts.conflicts),
    _Check("I10", ("revisions",), write_counts.evictions),
    _Check("I10", ("revisions",), write_counts.deletions),
    _Check("I10", ("revisions",), write_counts.repeats, with_faults=True),
    _Check("I10", ("revisions",), write_counts.kubernetes_events),
    _Check("I11", ("entries",), ops.duplicate_results),
    _Check("I11", ("events",), ops.duplicate_event_ids),
)


_OF_AGENTS: Final = tuple(
    check
    for check in _CHECKS
    if "entries" in check.needs or check.find in (leases.leases, proof.proof)
)
"""The checks of journals, each of which judges a node by its own records alone."""


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    violations: tuple[Violation, ...] = ()
    """In the order of time."""
    not_judged: dict[str, str] = {}
    """The missing sources by invariant; violations found without these sources are still listed."""


def judge(journal: AuditJournal, *, faults: bool = False) -> AuditResult:
    """Return every violation in the journal.

    With `faults`, faults were injected into the run: of I10 only repeats are then judged, because
    it limits the writes of an undisturbed run.
    """
    return _run(journal, _CHECKS, faults=faults)


def judge_agents(journal: AuditJournal) -> AuditResult:
    """Return the violations that the journals and the events of agents show without any write."""
    return _run(journal, [each for each in _OF_AGENTS if "revisions" not in each.needs])


def judge_agents_by_writes(journal: AuditJournal) -> AuditResult:
    """Return the violations that the journals of agents show beside the writes to their Nodes."""
    return _run(journal, [each for each in _OF_AGENTS if "revisions" in each.needs])


def _run(journal: AuditJournal, checks: Sequence[_Check], *, faults: bool = True) -> AuditResult:
    case = AuditCase(journal)
    violations: list[Violation] = []
    unjudged: dict[str, list[str]] = {}
    for check in checks:
        missing = [source for source in check.needs if getattr(journal, source) is None]
        if faults and check.invariant == "I10" and not check.with_faults:
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


def isolation(
    with_sick: AuditJournal,
    without_sick: AuditJournal,
    *,
    sick: Collection[str],
    tolerance: float = 0.0,
) -> tuple[Violation, ...]:
    """Check I7: return the healthy nodes that sick nodes delayed by more than `tolerance` seconds.

    Sick nodes may delay healthy ones only by the share of the budget that they occupy: the second
    run has no sick nodes, and its budget is smaller by their number. `sick` holds their names.
    """
    violations: list[Violation] = []
    actual_times = _done_times(with_sick)
    for node, expected in sorted(_done_times(without_sick).items()):
        actual = actual_times.get(node)
        if node in sick or (actual is not None and actual <= expected + tolerance):
            continue
        late = "did not finish" if actual is None else f"finished {actual - expected:.0f} s later"
        violations.append(
            Violation(
                invariant="I7",
                node=node,
                time=expected if actual is None else actual,
                message=f"{node} is healthy, but {late} in the run with sick nodes",
            )
        )
    return tuple(violations)


def _done_times(journal: AuditJournal) -> dict[str, float]:
    """Return by node name the time at which each node was last upgraded."""
    timeline = Timeline(journal.revisions or (), journal.start)
    return {
        change.node.name: change.revision.time
        for change in timeline.changes
        if change.by_scheduler and change.new_state == UpgradeState.UPGRADE_DONE
    }
