"""I3: returns to service with and without proof, and returns that need none."""

from typing import Any

import msgspec
import pytest

from libs.audit import judge
from libs.contracts.node import REQUEST_ANNOTATION, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import (
    OLD_LABEL,
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


def underway(name: str = "n1") -> JournalBuilder:
    builder = JournalBuilder(name)
    builder.lease_and_start(name)
    builder.advance(60)
    builder.pass_validation(name)
    return builder


def proof_of(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I3")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"passed": False}, "its evidence is of a failed validation"),
        ({"node_uid": "uid-n9"}, "its evidence is of node uid uid-n9"),
        ({"boot_id": "old"}, "its evidence is of boot old, but the node runs boot boot-n1"),
        (
            {"label": OLD_LABEL},
            f"its evidence is for label '{OLD_LABEL}', but the node runs 'main-t2-ubuntu'",
        ),
        ({"token": 0}, "its evidence is of token 0, but token 1 needs new evidence"),
        ({"token": 2}, "its evidence is of token 2, which was never issued"),
        (
            {"driver_pod_uid": "", "driver_started": 0.0},
            "its evidence names no instance of the driver",
        ),
        ({"at": 999_990.0}, "its evidence is of 999990, older than the last change of the driver"),
    ],
)
def test_wrong_evidence_is_a_violation(overrides: dict[str, Any], problem: str) -> None:
    builder = underway()
    write = builder.finish("n1", evidence=builder.evidence("n1", **overrides))
    assert proof_of(builder) == [f"{WITHOUT} {problem}"]
    assert ("I3", "n1", write.revision) in violations_of(builder.journal())


def test_missing_evidence_is_a_violation() -> None:
    builder = underway()
    record = msgspec.structs.replace(builder.records["n1"], state="upgrade-done", evidence=None)
    builder.apply("n1", state("upgrade-done"), leased(None), cordoned(None), record=record)
    assert proof_of(builder) == [f"{WITHOUT} its record has no evidence"]
    builder = underway()
    gone = annotated("sluice.dev/upgrade", None)
    builder.apply("n1", state("upgrade-done"), leased(None), cordoned(None), gone)
    assert proof_of(builder) == [f"{WITHOUT} its record has no evidence"]


def test_a_reboot_voids_the_evidence() -> None:
    builder = underway()
    evidence = builder.evidence("n1")
    builder.reboot("n1", "second")
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of boot boot-n1, but the node runs boot second"
    ]


def test_evidence_without_an_entry_of_the_validator_is_a_violation() -> None:
    builder = underway()
    builder.entries.clear()
    builder.finish("n1")
    assert proof_of(builder) == [
        f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SUPERSEDED])
def test_evidence_against_the_entry_of_the_validator_is_a_violation(outcome: Outcome) -> None:
    builder = underway()
    builder.entries.clear()
    builder.op("n1", "validator", "validate", op=1, outcome=outcome)
    builder.finish("n1")
    assert len(proof_of(builder)) == 1


def test_an_entry_of_the_validator_after_the_return_is_a_violation() -> None:
    builder = underway()
    builder.entries.clear()
    builder.finish("n1")
    builder.advance(10)
    builder.op("n1", "validator", "validate", op=1)
    assert len(proof_of(builder)) == 1


def test_a_failed_node_does_not_become_done_without_a_new_validation() -> None:
    builder = underway()
    builder.fail("n1")
    builder.advance(60)
    builder.finish("n1", evidence=builder.evidence("n1"))
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def test_uncordoning_a_failed_node_is_a_violation() -> None:
    builder = underway()
    builder.fail("n1")
    builder.apply("n1", cordoned(None), state("upgrade-required"))
    assert len(proof_of(builder)) == 1


def test_without_a_state_in_the_record_the_label_decides() -> None:
    builder = underway()
    record = msgspec.structs.replace(builder.records["n1"], state="")
    builder.apply("n1", state("upgrade-failed"), leased(None), record=record)
    assert violations_of(builder.journal()) == []
    builder.apply("n1", cordoned(None), record=record)
    assert len(proof_of(builder)) == 1


@pytest.mark.parametrize("operation", [Operation.SAME_LABEL, Operation.VALIDATE])
def test_an_aborted_retry_of_a_failed_node_keeps_its_cordon(operation: Operation) -> None:
    builder = underway()
    builder.fail("n1")
    builder.take_lease("n1", operation=operation, cordon=False)
    builder.release_unchanged("n1", cordoned(True))
    assert violations_of(builder.journal(failure_threshold=2)) == []
    builder.take_lease("n1", operation=operation, cordon=False)
    builder.release_unchanged("n1")
    assert len(proof_of(builder)) == 1


def test_an_aborted_retry_needs_no_proof_after_a_person_uncordoned() -> None:
    builder = underway()
    builder.fail("n1")
    builder.cordon("n1", False)
    for _ in range(2):
        builder.take_lease("n1", operation=Operation.SAME_LABEL)
        builder.release_unchanged("n1")
    assert violations_of(builder.journal(failure_threshold=2)) == []
    builder.take_lease("n1", operation=Operation.SAME_LABEL)
    builder.start("n1", restart=True)
    builder.release_unchanged("n1")
    assert len(proof_of(builder)) == 1


def test_a_changed_node_is_released_only_on_proof_even_cordoned() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.lease_and_start("n1")
    builder.release_unchanged("n1", cordoned(True))
    assert len(proof_of(builder)) == 1


def test_a_failed_node_is_done_after_a_new_validation() -> None:
    builder = underway()
    builder.fail("n1")
    builder.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    builder.pass_validation("n1")
    builder.finish("n1")
    assert violations_of(builder.journal()) == []


def test_a_release_after_the_driver_label_moved_needs_proof() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    write = builder.release_unchanged("n1")
    assert ("I3", "n1", write.revision) in violations_of(builder.journal())
    assert proof_of(builder) == [f"{WITHOUT} its record has no evidence"]


def test_a_moved_label_needs_proof_even_without_the_started_flag() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.records["n1"] = msgspec.structs.replace(builder.records["n1"], started=False)
    builder.apply("n1", record=builder.records["n1"])
    write = builder.release_unchanged("n1")
    assert ("I3", "n1", write.revision) in violations_of(builder.journal())


def test_dropping_the_cordon_midway_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.apply("n1", cordoned(None), record=builder.records["n1"])
    assert len(proof_of(builder)) == 1


def test_writing_the_label_again_voids_the_evidence() -> None:
    builder = underway()
    evidence = builder.evidence("n1")
    builder.advance(10)
    builder.label("n1", "sluice.dev/driver", None)
    builder.start("n1")
    builder.validate("n1")
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of 1000060, older than the last change of the driver"
    ]


@pytest.mark.parametrize(("at", "problems"), [(-10.0, 1), (30.0, 0)])
def test_restarting_the_driver_voids_the_evidence(at: float, problems: int) -> None:
    builder = underway()
    builder.finish("n1")
    builder.advance(100)
    builder.take_lease("n1", operation=Operation.SAME_LABEL)
    started = builder.time
    builder.start("n1", restart=True)
    builder.advance(60)
    builder.pass_validation("n1")
    builder.finish("n1", evidence=builder.evidence("n1", at=started + at))
    assert len(proof_of(builder)) == problems


def test_restarting_the_driver_with_the_lease_voids_the_evidence() -> None:
    builder = underway()
    builder.fail("n1")
    builder.advance(100)
    builder.take_lease("n1", operation=Operation.RESTART, started=True)
    builder.pass_validation("n1")
    builder.finish("n1", evidence=builder.evidence("n1", at=builder.time - 10))
    assert len(proof_of(builder)) == 1


def test_the_present_label_needs_proof() -> None:
    builder = underway()
    evidence = builder.evidence("n1")
    builder.label("n1", "sluice.dev/driver", "mine")
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is for label 'main-t2-ubuntu', but the node runs 'mine'"
    ]


@pytest.mark.parametrize(("label", "problems"), [("as-it-came", 0), ("other", 1)])
def test_without_a_driver_label_the_label_of_the_record_needs_proof(
    label: str, problems: int
) -> None:
    builder = JournalBuilder()
    builder.node("n1", driver="")
    builder.take_lease("n1", operation=Operation.VALIDATE, cordon=False, label="as-it-came")
    builder.pass_validation("n1")
    builder.finish("n1", evidence=builder.evidence("n1", label=label))
    assert len(proof_of(builder)) == problems


def test_an_entry_of_the_validator_on_another_boot_is_a_violation() -> None:
    builder = underway()
    builder.reboot("n1", "second")
    builder.finish("n1", evidence=builder.evidence("n1"))
    assert proof_of(builder) == [
        f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
    ]


@pytest.mark.parametrize("failed", [False, True])
def test_a_node_changed_at_the_start_needs_proof(failed: bool) -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    if failed:
        builder.fail("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    builder.apply("n1", cordoned(None), record=builder.records["n1"])
    journal = builder.journal(revisions=tuple(builder.revisions[begun:]), start=start)
    assert messages(journal, "I3") == [f"{WITHOUT} its record has no evidence"]


def test_a_node_only_leased_at_the_start_needs_no_proof() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    builder.release_unchanged("n1")
    journal = builder.journal(revisions=tuple(builder.revisions[begun:]), start=start)
    assert messages(journal, "I3") == []


def test_a_first_bring_up_needs_proof_too() -> None:
    builder = JournalBuilder()
    builder.node("n1", driver="")
    builder.lease_and_start("n1", operation=Operation.BRING_UP, cordon=False)
    builder.finish("n1", evidence=builder.evidence("n1", passed=False))
    assert proof_of(builder)[0].endswith("its evidence is of a failed validation")


def test_evidence_of_a_deleted_driver_pod_is_a_violation() -> None:
    builder = underway()
    builder.pod("pod-n1-new")
    builder.objects["Pod", "pod-n1-new"]["metadata"]["uid"] = "pod-n1-new"
    builder.revisions[-1] = msgspec.structs.replace(builder.revisions[-1], uid="pod-n1-new")
    builder.write("Pod", "pod-n1-new", labelled("a/b", "c"), manager="kubelet")
    builder.advance(1000)
    builder.op("n1", "validator", "validate", op=1)
    builder.finish("n1")
    assert proof_of(builder) == []
    builder.lease_and_start("n1")
    builder.op("n1", "validator", "validate", op=1)
    evidence = builder.evidence("n1")
    builder.delete("Pod", "pod-n1-new", by="kubelet")
    builder.advance(90)
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == []
    builder.lease_and_start("n1")
    builder.advance(1)
    late = builder.evidence("n1", at=builder.time)
    builder.op("n1", "validator", "validate", op=1)
    builder.finish("n1", evidence=late)
    assert proof_of(builder) == [
        f"{WITHOUT} the driver pod pod-n1-new of its evidence was deleted at 1001060"
    ]


def test_a_release_before_the_start_needs_no_proof() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1")
    assert violations_of(builder.journal()) == []


def test_reverting_an_edited_state_needs_no_new_proof() -> None:
    builder = underway()
    builder.finish("n1")
    builder.reboot("n1", "second")
    builder.label("n1", "nvidia.com/gpu-driver-upgrade-state", "drain-required")
    builder.apply("n1", state("upgrade-done"), record=builder.records["n1"])
    assert violations_of(builder.journal()) == []


def test_a_withdrawn_upgrade_needs_the_existing_proof() -> None:
    builder = underway()
    builder.finish("n1")
    proven = builder.records["n1"]
    builder.mark_required("n1")
    builder.apply("n1", state("upgrade-done"), record=proven)
    assert violations_of(builder.journal()) == []
    builder.mark_required("n1")
    builder.reboot("n1", "second")
    builder.apply("n1", state("upgrade-done"), record=proven)
    assert len(proof_of(builder)) == 1


def test_an_aborted_validation_proves_nothing() -> None:
    builder = underway()
    builder.finish("n1")
    evidence = builder.evidence("n1")
    builder.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    builder.finish("n1", evidence=evidence)
    assert proof_of(builder) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def removal() -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1", operation=Operation.REMOVE, target="", label="")
    return builder


def dropped(builder: JournalBuilder) -> None:
    gone = annotated("sluice.dev/upgrade", None)
    builder.apply("n1", state(None), leased(None), cordoned(None), gone)


def test_a_removal_needs_the_entry_of_the_driver_agent() -> None:
    builder = removal()
    builder.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    dropped(builder)
    assert violations_of(builder.journal()) == []


def test_releasing_a_failed_node_from_its_validation_is_a_violation() -> None:
    builder = underway()
    builder.fail("n1")
    builder.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    builder.release_unchanged("n1")
    assert len(proof_of(builder)) == 1


def test_an_entry_of_another_component_does_not_prove_a_removal() -> None:
    builder = removal()
    builder.op("n1", "discovery", "swap", op=1)
    dropped(builder)
    assert len(proof_of(builder)) == 1


@pytest.mark.parametrize("outcome", [None, Outcome.FAILED])
def test_a_removal_without_an_entry_of_the_driver_agent_is_a_violation(
    outcome: Outcome | None,
) -> None:
    builder = removal()
    if outcome:
        builder.op("n1", "driver", "swap", op=1, outcome=outcome)
    dropped(builder)
    assert proof_of(builder) == [
        "n1 was released without proof: no driver agent journaled a finished swap under token 1"
    ]


def test_a_removal_that_ends_as_done_needs_evidence() -> None:
    builder = removal()
    builder.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    builder.finish("n1", evidence=builder.evidence("n1", passed=False))
    assert proof_of(builder) == [f"{WITHOUT} its evidence is of a failed validation"]


def test_an_adopted_node_needs_no_proof() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.annotate("n1", "sluice.dev/upgrade", None)
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    record = NodeRecord(node_uid="uid-n1", epoch=1, token=1, state=UpgradeState.UPGRADE_REQUIRED)
    cleared = annotated(REQUEST_ANNOTATION, "")
    builder.apply("n1", leased(None), state("upgrade-required"), cleared, record=record)
    assert violations_of(builder.journal()) == []
    builder.apply("n1", cordoned(None), annotated(REQUEST_ANNOTATION, None), record=record)
    assert len(proof_of(builder)) == 1


def test_missing_boot_ids_are_reported_as_a_missing_source() -> None:
    builder = JournalBuilder("n1")
    del builder.revisions[0].changed["status.nodeInfo.bootID"]
    builder.upgrade("n1")
    verdict = judge(builder.journal())
    assert verdict.violations == ()
    assert verdict.not_judged == {"I3": "status.nodeInfo.bootID of n1"}
