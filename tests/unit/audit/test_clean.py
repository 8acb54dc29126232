"""Journals without fault: nothing is found, whoever else is at work; what is missing is said."""

import sys

import msgspec
import pytest

from libs.audit import AuditJournal, AuditResult, judge
from libs.contracts.node import Operation
from tests.unit.audit.builders import POOL, TARGET, JournalBuilder, cordoned


def test_an_upgrade_of_a_fleet_keeps_every_promise() -> None:
    story = JournalBuilder("n1", "n2", "n3")
    for name in ("n1", "n2", "n3"):
        story.upgrade(name)
    assert judge(story.journal()) == AuditResult()


def test_so_does_a_second_upgrade_of_the_same_nodes() -> None:
    story = JournalBuilder("n1", "n2")
    for _ in range(3):
        for name in ("n1", "n2"):
            story.upgrade(name)
    assert judge(story.journal()) == AuditResult()


def test_so_does_a_first_bring_up() -> None:
    story = JournalBuilder()
    story.node("n1", driver="")
    story.take_lease("n1", operation=Operation.BRING_UP, cordon=False)
    story.op("n1", "plugin", "quiesce", op=1)
    story.start("n1")
    story.op("n1", "driver", "swap", op=1, steps=("unload: none",))
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1")
    assert judge(story.journal()) == AuditResult()


def test_so_does_one_that_is_released_unchanged_and_tried_again() -> None:
    story = JournalBuilder("n1")
    story.mark_required("n1")
    story.take_lease("n1")
    story.advance(300)
    story.release_unchanged("n1")
    story.advance(600)
    story.take_lease("n1")
    story.start("n1")
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1")
    assert judge(story.journal()) == AuditResult()


def test_others_may_write_what_they_like() -> None:
    story = JournalBuilder("n1", "n2", "n3")
    story.label("n1", "team", "blue")
    story.mark_required("n1")
    story.take_lease("n1")
    story.ready("n2", "Unknown")
    story.cordon("n3")
    story.label("n1", "team", "red", by="argo")
    story.start("n1")
    story.delete("Node", "n2")
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1")
    story.cordon("n1")
    assert judge(story.journal()) == AuditResult()


def test_a_person_who_cordoned_before_keeps_his_cordon() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.mark_required("n1")
    story.take_lease("n1")
    story.start("n1")
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", cordoned(True))
    assert judge(story.journal(max_unavailable=0)) == AuditResult()


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
    story = JournalBuilder("n1")
    story.upgrade("n1")
    verdict = judge(msgspec.structs.replace(story.journal(), **{without: None}))
    assert verdict == AuditResult(not_judged=unjudged)


def test_of_nothing_at_all_there_is_no_opinion() -> None:
    verdict = judge(AuditJournal())
    assert verdict.violations == ()
    assert set(verdict.not_judged) == {f"I{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)}


def test_a_run_with_faults_is_not_counted() -> None:
    story = JournalBuilder("n1")
    story.upgrade("n1")
    verdict = judge(story.journal(), faults=True)
    assert verdict == AuditResult(not_judged={"I10": "a run without injected faults"})


def test_what_is_found_comes_in_the_order_of_time() -> None:
    story = JournalBuilder("n1", "n2")
    story.take_lease("n2")
    story.advance(5)
    first = story.take_lease("n1")
    story.advance(5)
    second = story.start("n1")
    story.finish("n1", evidence=story.evidence("n1", passed=False))
    verdict = judge(story.journal())
    assert [one.time for one in verdict.violations] == sorted(
        one.time for one in verdict.violations
    )
    assert verdict.violations[0].invariant == "I1"
    assert verdict.violations[0].revision == first.revision
    assert first.time < second.time
    assert TARGET in "".join(one.message for one in verdict.violations if one.invariant == "I8")
    assert POOL in verdict.violations[0].message


def test_the_effort_grows_with_the_journal_and_no_faster() -> None:
    def calls(rounds: int) -> int:
        story = JournalBuilder(*(f"n{number}" for number in range(8)))
        for _ in range(rounds):
            for number in range(8):
                story.upgrade(f"n{number}")
        journal = story.journal()
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
