"""I3: what makes a node one that needs proof, and from which moment on."""

from typing import Any

import msgspec
import pytest

from libs.audit import AuditJournal, judge
from libs.contracts.journal import EntryPhase
from libs.contracts.node import DRIVER_LABEL, RECORD_ANNOTATION, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import (
    LABEL,
    JournalBuilder,
    annotated,
    cordoned,
    labelled,
    leased,
    messages,
    state,
    violations_of,
)

WITHOUT = "n1 returned to service without proof:"
NO_EVIDENCE = f"{WITHOUT} its record has no evidence"


def proof_of(story: JournalBuilder) -> list[str]:
    return messages(journal(story), "I3")


def journal(story: JournalBuilder, **otherwise: Any) -> AuditJournal:
    return story.journal(max_unavailable=2, failure_threshold=9, **otherwise)


def underway() -> JournalBuilder:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.advance(60)
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    return story


def failed() -> JournalBuilder:
    story = underway()
    story.fail("n1")
    return story


def rested() -> JournalBuilder:
    story = underway()
    story.finish("n1")
    return story


def retry_comes_to_nothing(story: JournalBuilder) -> None:
    story.take_lease("n1", operation=Operation.SAME_LABEL)
    story.release_unchanged("n1")


# What a person does to a failed node.


def test_a_failed_node_that_somebody_merely_labels_is_not_his() -> None:
    story = failed()
    story.label("n1", "team/colour", "red")
    retry_comes_to_nothing(story)
    assert proof_of(story) == [NO_EVIDENCE]


def test_nor_one_that_he_labels_when_it_has_no_cordon() -> None:
    story = underway()
    story.cordon("n1", False)
    story.fail("n1")
    story.label("n1", "team/colour", "red")
    retry_comes_to_nothing(story)
    assert proof_of(story) == [NO_EVIDENCE]


def test_one_that_he_uncordoned_stays_his_whatever_he_does_then() -> None:
    story = failed()
    story.cordon("n1", False)
    story.label("n1", "team/colour", "red")
    retry_comes_to_nothing(story)
    assert proof_of(story) == []


def test_who_uncordons_a_node_in_flight_does_not_take_it_as_it_will_fail() -> None:
    story = underway()
    story.cordon("n1", False)
    story.fail("n1", cordoned(True))
    retry_comes_to_nothing(story)
    assert proof_of(story) == [NO_EVIDENCE]


def test_a_failed_node_without_a_cordon_returns_when_its_retry_ends() -> None:
    story = underway()
    story.cordon("n1", False)
    story.fail("n1")
    story.take_lease("n1", operation=Operation.SAME_LABEL, cordon=False)
    story.release_unchanged("n1")
    assert proof_of(story) == [NO_EVIDENCE]


def test_a_failed_node_that_was_given_back_is_said_once() -> None:
    story = failed()
    story.apply("n1", cordoned(None), record=story.records["n1"])
    retry_comes_to_nothing(story)
    assert proof_of(story) == [NO_EVIDENCE]


def test_a_failure_before_the_start_changed_nothing_and_may_give_the_cordon_up() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.fail("n1", cordoned(None), cause="eviction")
    assert proof_of(story) == []


# What evidence must be younger than.


def test_a_failure_needs_evidence_of_a_later_token_than_its_record_says() -> None:
    story = JournalBuilder("n1")
    record = NodeRecord(
        node_uid="uid-n1", epoch=1, token=3, target="t2", label="main-t1-ubuntu",
        state=UpgradeState.UPGRADE_FAILED,
    )  # fmt: skip
    story.apply("n1", state("upgrade-failed"), record=record)
    story.op("n1", "validator", "validate", op=1, token=3)
    story.finish("n1")
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of token 3, but token 4 needs new evidence"
    ]


def test_or_said_where_it_is_dropped_with_the_failure() -> None:
    story = underway()
    evidence = story.evidence("n1")
    gone = annotated(RECORD_ANNOTATION, None)
    story.apply("n1", state("upgrade-failed"), leased(None), gone)
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


@pytest.mark.parametrize("ended", ["failed", "started"])
def test_so_it_is_for_a_node_that_the_journal_finds_like_this(ended: str) -> None:
    story = rested() if ended == "started" else failed()
    if ended == "started":
        story.take_lease("n1")
        story.start("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    story.finish("n1", evidence=story.evidence("n1", token=1))
    later = journal(story, revisions=tuple(story.revisions[begun:]), start=start)
    assert messages(later, "I3") == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def test_a_label_that_moves_under_a_lease_is_a_change_whatever_the_record_says() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.apply("n1", labelled(DRIVER_LABEL, LABEL), record=story.records["n1"])
    story.release_unchanged("n1")
    assert proof_of(story) == [NO_EVIDENCE]


def test_so_is_a_start_with_the_very_first_record() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", started=True)
    story.release_unchanged("n1")
    assert proof_of(story) == [NO_EVIDENCE]


def test_a_validation_changes_nothing_though_its_record_says_that_it_was_started() -> None:
    story = rested()
    story.take_lease("n1", operation=Operation.VALIDATE, cordon=False, started=True)
    story.release_unchanged("n1")
    assert proof_of(story) == []


@pytest.mark.parametrize(("at", "problems"), [(0.0, 0), (-2.0, 0), (-2.5, 1)])
def test_evidence_of_no_time_and_of_just_before_the_change_is_young_enough(
    at: float, problems: int
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    started = story.time
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", evidence=story.evidence("n1", at=at and started + at))
    assert len(proof_of(story)) == problems


def test_a_driver_that_is_no_pod_is_known_by_when_it_was_loaded() -> None:
    story = underway()
    story.finish("n1", evidence=story.evidence("n1", driver_pod_uid=""))
    assert violations_of(story.journal()) == []


# A state that shows `upgrade-done` all the while.


def quietly(story: JournalBuilder, operation: Operation, token: int) -> None:
    """Leased without another state."""
    record = msgspec.structs.replace(story.records["n1"], operation=operation, token=token)
    story.apply("n1", leased(story.lease("n1", token)), record=record)


def end_quietly(story: JournalBuilder) -> None:
    record = msgspec.structs.replace(story.records["n1"], operation=None)
    story.apply("n1", leased(None), record=record)


def test_a_validation_that_ends_in_place_needs_its_own_evidence() -> None:
    story = rested()
    quietly(story, Operation.VALIDATE, 2)
    story.apply("n1", record=story.records["n1"])
    assert proof_of(story) == []
    end_quietly(story)
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def test_while_it_lasts_nothing_has_returned() -> None:
    story = rested()
    story.reboot("n1", "second")
    quietly(story, Operation.VALIDATE, 2)
    story.apply("n1", record=story.records["n1"])
    assert proof_of(story) == []


def test_what_comes_to_nothing_before_its_start_needs_no_evidence_of_this_boot() -> None:
    story = rested()
    story.reboot("n1", "second")
    quietly(story, Operation.SAME_LABEL, 2)
    end_quietly(story)
    assert proof_of(story) == []


def test_a_wish_that_is_withdrawn_under_its_lease_needs_the_evidence_that_there_is() -> None:
    story = rested()
    evidence = story.evidence("n1")
    story.take_lease("n1")
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == []


def test_a_validation_that_shows_done_before_its_lease_ends_is_judged_by_what_it_shows() -> None:
    story = rested()
    evidence = story.evidence("n1")
    story.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    record = msgspec.structs.replace(
        story.records["n1"], state=UpgradeState.UPGRADE_DONE, evidence=evidence
    )
    story.apply("n1", state("upgrade-done"), record=record)
    assert proof_of(story) == []


# Who wrote down what.


def removed() -> JournalBuilder:
    """The record still has evidence, of which no validator tells."""
    story = rested()
    story.take_lease("n1", operation=Operation.REMOVE, target="", label="")
    story.start("n1")
    left = story.evidence("n1", op=7)
    story.records["n1"] = msgspec.structs.replace(story.records["n1"], evidence=left)
    return story


def test_a_removal_needs_no_validator_whatever_evidence_is_left_in_the_record() -> None:
    story = removed()
    story.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    story.release_unchanged("n1")
    assert proof_of(story) == []


def test_a_driver_agent_that_was_merely_told_to_rest_took_nothing_away() -> None:
    story = removed()
    story.op("n1", "driver", "idle", op=1)
    story.release_unchanged("n1")
    assert (
        "n1 was released without proof: no driver agent journaled a finished swap under token 2"
        in (proof_of(story))
    )


def test_without_what_agents_wrote_down_a_removal_is_not_judged() -> None:
    story = removed()
    story.release_unchanged("n1")
    verdict = judge(journal(story, entries=None))
    assert [one for one in verdict.violations if one.invariant == "I3"] == []
    assert verdict.not_judged["I3"] == "entries"


@pytest.mark.parametrize(("after", "problems"), [(2.0, 0), (2.5, 1)])
def test_a_validator_whose_clock_is_a_little_ahead(after: float, problems: int) -> None:
    story = underway()
    story.entries.clear()
    story.finish("n1")
    story.advance(after)
    story.op("n1", "validator", "validate", op=1)
    assert len(proof_of(story)) == problems


def test_a_result_that_was_written_down_before_the_end_is_none() -> None:
    story = underway()
    story.entries.clear()
    story.entry("n1", "validator", "validate", EntryPhase.STARTED, op=1, outcome=Outcome.DONE)
    story.finish("n1")
    assert proof_of(story) == [
        f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
    ]
