"""Journals without violations, and journals with missing sources."""

import sys

import pytest
from msgspec.structs import replace

from libs.audit import AuditJournal, AuditResult, judge
from tests.unit.audit.builders import POOL, TARGET, JournalBuilder, cases


@cases(
    "story",
    an_upgrade_of_a_fleet="upgrade; upgrade n2; upgrade n3",
    repeated_upgrades_of_the_same_nodes="upgrade; upgrade n2;" * 3,
    a_first_bring_up=(
        "delete Node n1; node uid=new driver=; lease operation=bring-up; op plugin quiesce; start;"
        "op driver swap unload:none; prove; finish"
    ),
    a_retry_after_an_unchanged_release=(
        "require; lease; advance 300; release; advance 600; begin_upgrade; prove; finish"
    ),
    writes_of_others=(
        "label n1 team blue; require; lease; ready n2 status=Unknown; cordon n3;"
        "label n1 team red by=argo; start; delete Node n2; prove; finish; cordon"
    ),
    a_cordon_kept_for_a_person="cordon; require; begin_upgrade; prove; finish cordon=True",
)
def test_a_good_journal_has_no_violation(story: str) -> None:
    builder = JournalBuilder("n1", "n2", "n3").play(story)
    assert judge(builder.journal()) == AuditResult()


@pytest.mark.parametrize(
    ("source", "invariants"),
    [
        ("revisions", "I1 I2 I3 I4 I6 I8 I9 I10"),
        ("entries", "I2 I3 I5 I9 I11"),
        ("events", "I9 I11"),
    ],
)
def test_a_missing_source_is_named_and_the_rest_is_judged(source: str, invariants: str) -> None:
    builder = JournalBuilder("n1").play("upgrade")
    result = judge(replace(builder.journal(), **{source: None}))
    assert result == AuditResult(not_judged=dict.fromkeys(invariants.split(), source))


def test_an_empty_journal_judges_nothing() -> None:
    result = judge(AuditJournal())
    assert result.violations == ()
    assert set(result.not_judged) == {f"I{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)}


def test_writes_are_not_counted_in_a_run_with_faults() -> None:
    builder = JournalBuilder("n1").play("upgrade")
    result = judge(builder.journal(), faults=True)
    assert result == AuditResult(not_judged={"I10": "a run without injected faults"})


def test_violations_are_ordered_by_time() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.play("lease n2; advance 5; !lease n1; advance 5; start; finish passed=False")
    violations = judge(builder.journal()).violations
    times = [violation.time for violation in violations]
    assert times == sorted(times)
    first = violations[0]
    assert (first.invariant, [first.revision]) == ("I1", builder.planted)
    assert POOL in first.message
    assert any(found.invariant == "I8" and TARGET in found.message for found in violations)


def test_the_effort_is_linear_in_the_length_of_the_journal() -> None:
    def calls(rounds: int) -> int:
        nodes = [f"n{number}" for number in range(8)]
        builder = JournalBuilder(*nodes)
        for name in nodes * rounds:
            builder.upgrade(name)
        journal = builder.journal()
        counted = 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            result = judge(journal)
        finally:
            sys.setprofile(None)
        assert result == AuditResult()
        return counted

    calls(1)  # what is computed once
    assert calls(16) < 8 * 1.1 * calls(2)
