"""I4, the cordon: what others want is known from what they wrote, and from nothing else."""

import pytest

from libs.contracts.node import (
    KEEP_CORDONED_LABEL,
    LEASE_ANNOTATION,
    MANAGER,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    STATE_LABEL,
    UpgradeState,
)
from tests.unit.audit.builders import JournalBuilder, annotated, cordoned, messages

STAYS = "n1 was released with our cordon left on it"


def of_i4(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I4")


def finish(story: JournalBuilder, *, stays: bool) -> None:
    story.take_lease("n1")
    story.start("n1")
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", cordoned(stays))


def fail(story: JournalBuilder) -> None:
    story.take_lease("n1")
    story.start("n1")
    story.fail("n1")


@pytest.mark.parametrize("whole", [True, False])
def test_who_is_first_seen_midway_may_have_been_cordoned_by_anybody(whole: bool) -> None:
    story = JournalBuilder("n1")
    finish(story, stays=True)
    revisions = tuple(story.revisions[0 if whole else 1 :])
    assert messages(story.journal(revisions=revisions), "I4") == [STAYS] * whole


def test_a_persons_cordon_stays_his_when_the_record_is_lost_midway() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.take_lease("n1")
    story.start("n1")
    story.annotate("n1", RECORD_ANNOTATION, "garbled")
    story.annotate("n1", LEASE_ANNOTATION, None)
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    story.release_unchanged("n1")
    assert of_i4(story) == ["n1 was uncordoned, although kubectl had cordoned it"]


@pytest.mark.parametrize(("lost", "problems"), [(True, 0), (False, 1)])
def test_whose_it_had_been_nobody_knows_where_the_record_that_said_so_is_lost(
    lost: bool, problems: int
) -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.label("n1", STATE_LABEL, UpgradeState.UPGRADE_FAILED, by="gpu-operator")
    story.mark_required("n1", cordon_adopted=True)
    if lost:
        story.annotate("n1", RECORD_ANNOTATION, "garbled")
        story.annotate("n1", REQUEST_ANNOTATION, "adopt")
        story.mark_required("n1")
    finish(story, stays=True)
    assert of_i4(story) == [STAYS] * problems


def test_what_others_write_while_the_gpu_operator_is_busy_is_no_taking_up() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED, by="gpu-operator")
    story.label("n1", STATE_LABEL, UpgradeState.UPGRADE_DONE, by="gpu-operator")
    story.mark_required("n1")
    finish(story, stays=False)
    assert of_i4(story) == ["n1 was uncordoned, although kubectl had cordoned it"]


def test_a_failure_of_the_gpu_operator_is_no_reason_to_keep_our_cordon() -> None:
    story = JournalBuilder("n1")
    story.label("n1", STATE_LABEL, UpgradeState.UPGRADE_FAILED, by="gpu-operator")
    story.mark_required("n1")
    story.take_lease("n1")
    story.release_unchanged("n1", cordoned(True))
    assert of_i4(story) == [STAYS]


def test_who_had_failed_keeps_the_cordon_through_a_retry_that_comes_to_nothing() -> None:
    story = JournalBuilder("n1")
    fail(story)
    story.take_lease("n1")
    story.release_unchanged("n1", cordoned(True))
    assert of_i4(story) == []


def test_but_not_through_one_that_ends_well_nor_through_what_follows_it() -> None:
    story = JournalBuilder("n1")
    fail(story)
    finish(story, stays=True)
    assert of_i4(story) == [STAYS]
    story = JournalBuilder("n1")
    fail(story)
    finish(story, stays=False)
    story.take_lease("n1")
    story.release_unchanged("n1", cordoned(True))
    assert of_i4(story) == [STAYS]


@pytest.mark.parametrize(
    ("request_", "cordon", "problems"), [("forget", True, 0), ("forget", None, 1), ("", True, 2)]
)
def test_who_was_given_up_under_our_cordon_keeps_it_through_an_attempt_that_comes_to_nothing(
    request_: str, cordon: bool | None, problems: int
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.annotate("n1", REQUEST_ANNOTATION, request_)
    story.release_unchanged("n1", cordoned(cordon), annotated(REQUEST_ANNOTATION, None))
    story.take_lease("n1")
    story.release_unchanged("n1", cordoned(True))
    assert of_i4(story) == [STAYS] * problems


def test_who_never_failed_keeps_none_through_an_attempt_that_comes_to_nothing() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1", cordoned(True))
    assert of_i4(story) == [STAYS]


def test_a_node_that_went_was_not_uncordoned_by_whoever_first_writes_to_its_successor() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    begun = len(story.revisions)
    story.delete("Node", "n1")
    story.node("n1", uid="uid-again")
    lost = story.revisions[begun:]
    story.mark_required("n1")
    revisions = tuple(one for one in story.revisions if one not in lost)
    assert messages(story.journal(revisions=revisions), "I4") == []


def test_the_label_that_keeps_a_cordon_holds_nothing_against_a_node_without_one() -> None:
    story = JournalBuilder("n1")
    story.label("n1", KEEP_CORDONED_LABEL, "true")
    story.mark_required("n1")
    assert of_i4(story) == []


def test_who_wrote_the_cordon_before_a_journal_without_managed_fields_is_not_named() -> None:
    story = JournalBuilder("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    story.apply("n1", cordoned(True))
    later = story.journal(revisions=tuple(story.revisions[begun:]), start=start)
    said = "n1 was cordoned without a lease, after another manager had uncordoned it"
    assert messages(later, "I4") == [said]


def test_nor_are_we() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1")
    write = story.apply("n1", cordoned(True))
    assert write.manager == MANAGER
    said = "n1 was cordoned without a lease, after another manager had uncordoned it"
    assert of_i4(story) == [said]
