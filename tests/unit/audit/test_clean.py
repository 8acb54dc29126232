"""Journals without violations, and journals with missing sources."""

import sys

import msgspec
import pytest

from libs.audit import AuditJournal, AuditResult, judge
from libs.contracts.node import Operation
from tests.unit.audit.builders import POOL, TARGET, JournalBuilder, cordoned


def test_an_upgrade_of_a_fleet_has_no_violation() -> None:
    builder = JournalBuilder("n1", "n2", "n3")
    for name in ("n1", "n2", "n3"):
        builder.upgrade(name)
    assert judge(builder.journal()) == AuditResult()


def test_repeated_upgrades_of_the_same_nodes_have_no_violation() -> None:
    builder = JournalBuilder("n1", "n2")
    for _ in range(3):
        for name in ("n1", "n2"):
            builder.upgrade(name)
    assert judge(builder.journal()) == AuditResult()


def test_a_first_bring_up_has_no_violation() -> None:
    builder = JournalBuilder()
    builder.node("n1", driver="")
    builder.take_lease("n1", operation=Operation.BRING_UP, cordon=False)
    builder.op("n1", "plugin", "quiesce", op=1)
    builder.start("n1")
    builder.op("n1", "driver", "swap", op=1, steps=("unload: none",))
    builder.pass_validation("n1")
    builder.finish("n1")
    assert judge(builder.journal()) == AuditResult()


def test_a_retry_after_an_unchanged_release_has_no_violation() -> None:
    builder = JournalBuilder("n1")
    builder.mark_required("n1")
    builder.take_lease("n1")
    builder.advance(300)
    builder.release_unchanged("n1")
    builder.advance(600)
    builder.lease_and_start("n1")
    builder.pass_validation("n1")
    builder.finish("n1")
    assert judge(builder.journal()) == AuditResult()


def test_writes_of_others_are_no_violation() -> None:
    builder = JournalBuilder("n1", "n2", "n3")
    builder.label("n1", "team", "blue")
    builder.mark_required("n1")
    builder.take_lease("n1")
    builder.ready("n2", "Unknown")
    builder.cordon("n3")
    builder.label("n1", "team", "red", by="argo")
    builder.start("n1")
    builder.delete("Node", "n2")
    builder.pass_validation("n1")
    builder.finish("n1")
    builder.cordon("n1")
    assert judge(builder.journal()) == AuditResult()


def test_a_cordon_kept_for_a_person_is_no_violation() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.mark_required("n1")
    builder.lease_and_start("n1")
    builder.pass_validation("n1")
    builder.finish("n1", cordoned(True))
    assert judge(builder.journal(max_unavailable=0)) == AuditResult()


@pytest.mark.parametrize(
    ("without", "unjudged"),
    [
        (
            "revisions",
            {
                "I1": "revisions",
                "I2": "revisions",
                "I3": "revisions",
                "I4": "revisions",
                "I6": "revisions",
                "I8": "revisions",
                "I9": "revisions",
                "I10": "revisions",
            },
        ),
        (
            "entries",
            {
                "I2": "entries",
                "I3": "entries",
                "I5": "entries",
                "I9": "entries",
                "I11": "entries",
            },
        ),
        ("events", {"I9": "events", "I11": "events"}),
    ],
)
def test_a_missing_source_is_named_and_the_rest_is_judged(
    without: str, unjudged: dict[str, str]
) -> None:
    builder = JournalBuilder("n1")
    builder.upgrade("n1")
    verdict = judge(msgspec.structs.replace(builder.journal(), **{without: None}))
    assert verdict == AuditResult(not_judged=unjudged)


def test_an_empty_journal_judges_nothing() -> None:
    verdict = judge(AuditJournal())
    assert verdict.violations == ()
    assert set(verdict.not_judged) == {f"I{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)}


def test_writes_are_not_counted_in_a_run_with_faults() -> None:
    builder = JournalBuilder("n1")
    builder.upgrade("n1")
    verdict = judge(builder.journal(), faults=True)
    assert verdict == AuditResult(not_judged={"I10": "a run without injected faults"})


def test_violations_are_ordered_by_time() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.take_lease("n2")
    builder.advance(5)
    first = builder.take_lease("n1")
    builder.advance(5)
    second = builder.start("n1")
    builder.finish("n1", evidence=builder.evidence("n1", passed=False))
    verdict = judge(builder.journal())
    assert [one.time for one in verdict.violations] == sorted(
        one.time for one in verdict.violations
    )
    assert verdict.violations[0].invariant == "I1"
    assert verdict.violations[0].revision == first.revision
    assert first.time < second.time
    assert TARGET in "".join(one.message for one in verdict.violations if one.invariant == "I8")
    assert POOL in verdict.violations[0].message


def test_the_effort_is_linear_in_the_length_of_the_journal() -> None:
    def calls(rounds: int) -> int:
        builder = JournalBuilder(*(f"n{number}" for number in range(8)))
        for _ in range(rounds):
            for number in range(8):
                builder.upgrade(f"n{number}")
        journal = builder.journal()
        counted = 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            verdict = judge(journal)
        finally:
            sys.setprofile(None)
        assert verdict == AuditResult()
        return counted

    calls(1)  # what is worked out once
    assert calls(16) < 8 * 1.1 * calls(2)
