"""I3: the changes after which a node needs proof."""

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


def proof_of(builder: JournalBuilder) -> list[str]:
    return messages(journal(builder), "I3")


def journal(builder: JournalBuilder, **overrides: Any) -> AuditJournal:
    return builder.journal(max_unavailable=2, failure_threshold=9, **overrides)


def underway() -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.advance(60)
    builder.pass_validation("n1")
    return builder


def failed() -> JournalBuilder:
    builder = underway()
    builder.fail("n1")
    return builder


def rested() -> JournalBuilder:
    builder = underway()
    builder.finish("n1")
    return builder


def retry_comes_to_nothing(builder: JournalBuilder) -> None:
    builder.take_lease("n1", operation=Operation.SAME_LABEL)
    builder.release_unchanged("n1")


def test_labelling_a_failed_node_does_not_excuse_it() -> None:
    builder = failed()
    builder.label("n1", "team/colour", "red")
    retry_comes_to_nothing(builder)
    assert proof_of(builder) == [NO_EVIDENCE]


def test_labelling_a_failed_node_without_a_cordon_does_not_excuse_it() -> None:
    builder = underway()
    builder.cordon("n1", False)
    builder.fail("n1")
    builder.label("n1", "team/colour", "red")
    retry_comes_to_nothing(builder)
    assert proof_of(builder) == [NO_EVIDENCE]


def test_a_failed_node_uncordoned_by_a_person_stays_excused() -> None:
    builder = failed()
    builder.cordon("n1", False)
    builder.label("n1", "team/colour", "red")
    retry_comes_to_nothing(builder)
    assert proof_of(builder) == []


def test_uncordoning_a_node_in_flight_does_not_excuse_its_failure() -> None:
    builder = underway()
    builder.cordon("n1", False)
    builder.fail("n1", cordoned(True))
    retry_comes_to_nothing(builder)
    assert proof_of(builder) == [NO_EVIDENCE]


def test_a_failed_node_without_a_cordon_returns_with_the_end_of_its_retry() -> None:
    builder = underway()
    builder.cordon("n1", False)
    builder.fail("n1")
    builder.take_lease("n1", operation=Operation.SAME_LABEL, cordon=False)
    builder.release_unchanged("n1")
    assert proof_of(builder) == [NO_EVIDENCE]


def test_a_failed_node_returned_without_proof_is_reported_once() -> None:
    builder = failed()
    builder.apply("n1", cordoned(None), record=builder.records["n1"])
    retry_comes_to_nothing(builder)
    assert proof_of(builder) == [NO_EVIDENCE]


def test_a_failure_before_the_start_may_give_up_the_cordon() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.fail("n1", cordoned(None), cause="eviction")
    assert proof_of(builder) == []


def test_a_failure_needs_evidence_of_a_later_token_than_its_record_says() -> None:
    builder = JournalBuilder("n1")
    record = NodeRecord(
        node_uid="uid-n1", epoch=1, token=3, target="t2", label="main-t1-ubuntu",
        state=UpgradeState.UPGRADE_FAILED,
    )  # fmt: skip
    builder.apply("n1", state("upgrade-failed"), record=record)
    builder.op("n1", "validator", "validate", op=1, token=3)
    builder.finish("n1")
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of token 3, but token 4 needs new evidence"
    ]


def test_a_dropped_record_does_not_lower_the_needed_token() -> None:
    builder = underway()
    evidence = builder.evidence("n1")
    gone = annotated(RECORD_ANNOTATION, None)
    builder.apply("n1", state("upgrade-failed"), leased(None), gone)
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


@pytest.mark.parametrize("ended", ["failed", "started"])
def test_a_node_failed_at_the_start_needs_evidence_of_a_later_token(ended: str) -> None:
    builder = rested() if ended == "started" else failed()
    if ended == "started":
        builder.lease_and_start("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    builder.finish("n1", evidence=builder.evidence("n1", token=1))
    later = journal(builder, revisions=tuple(builder.revisions[begun:]), start=start)
    assert messages(later, "I3") == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def test_a_label_moved_under_a_lease_is_a_change_without_the_started_flag() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.apply("n1", labelled(DRIVER_LABEL, LABEL), record=builder.records["n1"])
    builder.release_unchanged("n1")
    assert proof_of(builder) == [NO_EVIDENCE]


def test_a_start_with_the_first_record_is_a_change() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", started=True)
    builder.release_unchanged("n1")
    assert proof_of(builder) == [NO_EVIDENCE]


def test_a_validation_with_the_started_flag_changes_nothing() -> None:
    builder = rested()
    builder.take_lease("n1", operation=Operation.VALIDATE, cordon=False, started=True)
    builder.release_unchanged("n1")
    assert proof_of(builder) == []


@pytest.mark.parametrize(("at", "problems"), [(0.0, 0), (-2.0, 0), (-2.5, 1)])
def test_evidence_without_a_time_or_within_clock_skew_counts(at: float, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    started = builder.time
    builder.op("n1", "validator", "validate", op=1)
    builder.finish("n1", evidence=builder.evidence("n1", at=at and started + at))
    assert len(proof_of(builder)) == problems


def test_a_driver_without_a_pod_is_identified_by_its_start_time() -> None:
    builder = underway()
    builder.finish("n1", evidence=builder.evidence("n1", driver_pod_uid=""))
    assert violations_of(builder.journal()) == []


def quietly(builder: JournalBuilder, operation: Operation, token: int) -> None:
    """Take a lease without a new state."""
    record = msgspec.structs.replace(builder.records["n1"], operation=operation, token=token)
    builder.apply("n1", leased(builder.lease("n1", token)), record=record)


def end_quietly(builder: JournalBuilder) -> None:
    record = msgspec.structs.replace(builder.records["n1"], operation=None)
    builder.apply("n1", leased(None), record=record)


def test_a_validation_that_ends_in_place_needs_its_own_evidence() -> None:
    builder = rested()
    quietly(builder, Operation.VALIDATE, 2)
    builder.apply("n1", record=builder.records["n1"])
    assert proof_of(builder) == []
    end_quietly(builder)
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def test_a_running_validation_returns_nothing() -> None:
    builder = rested()
    builder.reboot("n1", "second")
    quietly(builder, Operation.VALIDATE, 2)
    builder.apply("n1", record=builder.records["n1"])
    assert proof_of(builder) == []


def test_an_aborted_attempt_before_the_start_needs_no_evidence_of_this_boot() -> None:
    builder = rested()
    builder.reboot("n1", "second")
    quietly(builder, Operation.SAME_LABEL, 2)
    end_quietly(builder)
    assert proof_of(builder) == []


def test_an_upgrade_withdrawn_under_its_lease_needs_the_existing_evidence() -> None:
    builder = rested()
    evidence = builder.evidence("n1")
    builder.take_lease("n1")
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == []


def test_a_validation_shown_as_done_before_its_lease_ends_needs_evidence() -> None:
    builder = rested()
    evidence = builder.evidence("n1")
    builder.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    record = msgspec.structs.replace(
        builder.records["n1"], state=UpgradeState.UPGRADE_DONE, evidence=evidence
    )
    builder.apply("n1", state("upgrade-done"), record=record)
    assert proof_of(builder) == []


def removed() -> JournalBuilder:
    """Remove a driver while the record still has evidence without an entry."""
    builder = rested()
    builder.lease_and_start("n1", operation=Operation.REMOVE, target="", label="")
    left = builder.evidence("n1", op=7)
    builder.records["n1"] = msgspec.structs.replace(builder.records["n1"], evidence=left)
    return builder


def test_a_removal_ignores_evidence_left_in_the_record() -> None:
    builder = removed()
    builder.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    builder.release_unchanged("n1")
    assert proof_of(builder) == []


def test_an_idle_command_does_not_prove_a_removal() -> None:
    builder = removed()
    builder.op("n1", "driver", "idle", op=1)
    builder.release_unchanged("n1")
    assert (
        "n1 was released without proof: no driver agent journaled a finished swap under token 2"
        in (proof_of(builder))
    )


def test_without_entries_a_removal_is_not_judged() -> None:
    builder = removed()
    builder.release_unchanged("n1")
    verdict = judge(journal(builder, entries=None))
    assert [one for one in verdict.violations if one.invariant == "I3"] == []
    assert verdict.not_judged["I3"] == "entries"


@pytest.mark.parametrize(("after", "problems"), [(2.0, 0), (2.5, 1)])
def test_clock_skew_of_the_validator_is_tolerated(after: float, problems: int) -> None:
    builder = underway()
    builder.entries.clear()
    builder.finish("n1")
    builder.advance(after)
    builder.op("n1", "validator", "validate", op=1)
    assert len(proof_of(builder)) == problems


def test_only_a_finished_entry_counts_as_a_validation() -> None:
    builder = underway()
    builder.entries.clear()
    builder.entry("n1", "validator", "validate", EntryPhase.STARTED, op=1, outcome=Outcome.DONE)
    builder.finish("n1")
    assert proof_of(builder) == [
        f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
    ]
