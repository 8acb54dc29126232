"""I4, the cordon: others want what they wrote, and nothing else shows it."""

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


def i4_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I4")


def finish(builder: JournalBuilder, *, stays: bool) -> None:
    builder.lease_and_start("n1")
    builder.pass_validation("n1")
    builder.finish("n1", cordoned(stays))


def fail(builder: JournalBuilder) -> None:
    builder.lease_and_start("n1")
    builder.fail("n1")


@pytest.mark.parametrize("whole", [True, False])
def test_a_node_first_seen_midway_has_an_unknown_cordon_owner(whole: bool) -> None:
    builder = JournalBuilder("n1")
    finish(builder, stays=True)
    revisions = tuple(builder.revisions[0 if whole else 1 :])
    assert messages(builder.journal(revisions=revisions), "I4") == [STAYS] * whole


def test_a_lost_record_does_not_change_the_owner_of_a_persons_cordon() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.lease_and_start("n1")
    builder.annotate("n1", RECORD_ANNOTATION, "garbled")
    builder.annotate("n1", LEASE_ANNOTATION, None)
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    builder.release_unchanged("n1")
    assert i4_violations(builder) == ["n1 was uncordoned, although kubectl had cordoned it"]


@pytest.mark.parametrize(("lost", "problems"), [(True, 0), (False, 1)])
def test_a_lost_record_leaves_the_owner_of_an_adopted_cordon_unknown(
    lost: bool, problems: int
) -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.label("n1", STATE_LABEL, UpgradeState.UPGRADE_FAILED, by="gpu-operator")
    builder.mark_required("n1", cordon_adopted=True)
    if lost:
        builder.annotate("n1", RECORD_ANNOTATION, "garbled")
        builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
        builder.mark_required("n1")
    finish(builder, stays=True)
    assert i4_violations(builder) == [STAYS] * problems


def test_only_our_own_write_takes_over_from_the_gpu_operator() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED, by="gpu-operator")
    builder.label("n1", STATE_LABEL, UpgradeState.UPGRADE_DONE, by="gpu-operator")
    builder.mark_required("n1")
    finish(builder, stays=False)
    assert i4_violations(builder) == ["n1 was uncordoned, although kubectl had cordoned it"]


def test_a_failure_of_the_gpu_operator_does_not_keep_our_cordon() -> None:
    builder = JournalBuilder("n1")
    builder.label("n1", STATE_LABEL, UpgradeState.UPGRADE_FAILED, by="gpu-operator")
    builder.mark_required("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1", cordoned(True))
    assert i4_violations(builder) == [STAYS]


def test_a_failed_node_keeps_its_cordon_through_an_aborted_retry() -> None:
    builder = JournalBuilder("n1")
    fail(builder)
    builder.take_lease("n1")
    builder.release_unchanged("n1", cordoned(True))
    assert i4_violations(builder) == []


def test_a_failed_node_loses_its_cordon_with_a_successful_retry() -> None:
    builder = JournalBuilder("n1")
    fail(builder)
    finish(builder, stays=True)
    assert i4_violations(builder) == [STAYS]
    builder = JournalBuilder("n1")
    fail(builder)
    finish(builder, stays=False)
    builder.take_lease("n1")
    builder.release_unchanged("n1", cordoned(True))
    assert i4_violations(builder) == [STAYS]


@pytest.mark.parametrize(
    ("request_", "cordon", "problems"), [("forget", True, 0), ("forget", None, 1), ("", True, 2)]
)
def test_an_adopted_or_forgotten_node_keeps_our_cordon_through_an_aborted_attempt(
    request_: str, cordon: bool | None, problems: int
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.annotate("n1", REQUEST_ANNOTATION, request_)
    builder.release_unchanged("n1", cordoned(cordon), annotated(REQUEST_ANNOTATION, None))
    builder.take_lease("n1")
    builder.release_unchanged("n1", cordoned(True))
    assert i4_violations(builder) == [STAYS] * problems


def test_a_node_that_never_failed_keeps_no_cordon_after_an_aborted_attempt() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1", cordoned(True))
    assert i4_violations(builder) == [STAYS]


def test_a_missing_deletion_is_not_taken_for_an_uncordon() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    begun = len(builder.revisions)
    builder.delete("Node", "n1")
    builder.node("n1", uid="uid-again")
    lost = builder.revisions[begun:]
    builder.mark_required("n1")
    revisions = tuple(one for one in builder.revisions if one not in lost)
    assert messages(builder.journal(revisions=revisions), "I4") == []


def test_the_keep_cordoned_label_needs_no_cordon() -> None:
    builder = JournalBuilder("n1")
    builder.label("n1", KEEP_CORDONED_LABEL, "true")
    builder.mark_required("n1")
    assert i4_violations(builder) == []


def test_an_unknown_owner_of_a_cordon_is_not_named() -> None:
    builder = JournalBuilder("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    builder.apply("n1", cordoned(True))
    later = builder.journal(revisions=tuple(builder.revisions[begun:]), start=start)
    said = "n1 was cordoned without a lease, after another manager had uncordoned it"
    assert messages(later, "I4") == [said]


def test_we_are_not_named_as_the_owner_of_a_foreign_cordon() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1")
    write = builder.apply("n1", cordoned(True))
    assert write.manager == MANAGER
    said = "n1 was cordoned without a lease, after another manager had uncordoned it"
    assert i4_violations(builder) == [said]
