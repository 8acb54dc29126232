"""A journal that begins in the middle of rollouts without a defect shows no violation."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from libs.audit import AuditJournal
from libs.audit.agents import AgentJournal
from libs.audit.partial import Coverage
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase, Revision
from libs.ctl.collect.audit import AuditSources, judged
from libs.ctl.collect.journals import JournalsRead
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import scenario

PARTS = 5


def found_in(journal: AuditJournal, part: int) -> list[str]:
    """Return the violations that `sluice audit` finds from this part of the journal on."""
    revisions = journal.revisions or ()
    cut = revisions[len(revisions) * part // PARTS :]
    result = judged(cut, journal.events, logs=["cut.log"], events_problem="")
    return [message for each in result.invariants for message in each.first]


@pytest.mark.parametrize("seed", [100, 104, 109, 1_000_003, 5_000_002])
def test_what_was_before_the_log_is_no_violation(seed: int) -> None:
    journal = run_scenario(scenario(seed)).stage.journal()
    for part in range(PARTS):
        assert found_in(journal, part) == []


def as_logged(revisions: Sequence[Revision]) -> tuple[Revision, ...]:
    """Return what an audit log shows: of an object's first write not what it changed."""
    seen: set[str] = set()
    logged: list[Revision] = []
    for each in revisions:
        is_first = each.uid not in seen and 200 <= each.code < 300
        logged.append(replace(each, changed={}) if is_first and each.code != 201 else each)
        seen |= {each.uid} if is_first else set()
    return tuple(logged)


def test_a_log_that_begins_after_a_grant_does_not_miss_the_grant() -> None:
    journal = run_scenario(scenario(102)).stage.journal()
    revisions = journal.revisions or ()
    for start, each in enumerate(revisions, 1):
        if each.kind != "Rollout" or each.code != 200 or start % 9:
            continue
        for cut in (revisions[start:], as_logged(revisions[start:])):
            found = judged(cut, journal.events, logs=["cut.log"], events_problem="")
            assert [message for one in found.invariants for message in one.first] == []


Keep = Callable[[AgentJournal], AgentJournal | None]


def whole(journal: AgentJournal) -> AgentJournal:
    return journal


def second_half(journal: AgentJournal) -> AgentJournal:
    """Return a journal as it is after it was compacted."""
    entries = journal.entries[len(journal.entries) // 2 :]
    return replace(journal, entries=entries, complete_since=entries[0].time)


def of_unknown_beginning(journal: AgentJournal) -> AgentJournal:
    return replace(second_half(journal), complete_since=None)


def without_validator(journal: AgentJournal) -> AgentJournal | None:
    return None if journal.component == Writer.VALIDATOR else journal


def journals_of(journal: AuditJournal, keep: Keep) -> dict[str, list[AgentJournal]]:
    """Return by node what of the journals an audit can read."""
    entries: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in journal.entries or ():
        entries[entry.node, entry.node_uid, entry.component].append(entry)
    found: dict[str, list[AgentJournal]] = defaultdict(list)
    for (node, uid, component), own in entries.items():
        read = AgentJournal(
            node_uid=uid, component=component, entries=own, complete_since=own[0].time
        )
        if (kept := keep(read)) is not None:
            found[node].append(kept)
    return found


def judged_with_journals(journal: AuditJournal, part: int, keep: Keep) -> dict[str, list[str]]:
    """Return the violations by invariant, with the log from this part on and these journals."""
    revisions = journal.revisions or ()
    cut = revisions[len(revisions) * part // PARTS :]
    sources = AuditSources(cut, journal.events, logs=["cut.log"], events_problem="")
    read = JournalsRead()
    for node, journals in journals_of(journal, keep).items():
        sources.agents.judge(node, journals)
        read.journals += len(journals)
    found = sources.verdict(read)
    return {each.name: list(each.first) for each in found.invariants if each.violations}


@pytest.mark.parametrize("keep", [whole, second_half, of_unknown_beginning, without_validator])
@pytest.mark.parametrize("seed", [100, 104, 109, 1_000_003, 5_000_002])
def test_journals_of_a_run_without_a_defect_show_no_violation(seed: int, keep: Keep) -> None:
    journal = run_scenario(scenario(seed)).stage.journal()
    for part in range(PARTS):
        assert judged_with_journals(journal, part, keep) == {}


def test_a_proof_that_no_validator_journaled_is_found_where_its_journal_was_read() -> None:
    journal = run_scenario(scenario(100)).stage.journal()
    entries = tuple(
        each
        for each in journal.entries or ()
        if each.component != Writer.VALIDATOR or each.phase != EntryPhase.FINISHED
    )
    withheld = replace(journal, entries=entries)
    found = judged_with_journals(withheld, 0, whole)
    assert all("did not journal validation" in each for each in found.pop("I3"))
    assert all("its journal has no end of that op" in each for each in found.pop("I9"))
    assert found == {}
    assert judged_with_journals(withheld, 0, without_validator) == {}


def test_a_node_is_judged_from_its_first_operation_in_the_log_on() -> None:
    revisions = run_scenario(scenario(100)).stage.journal().revisions or ()
    whole, end = Coverage(revisions), Coverage(revisions[-3:])
    assert len(whole.unjudged) < len(end.nodes | whole.nodes)
    assert set(end.unjudged) == end.nodes
