"""I3: who came back to service without proof, and who needed none."""

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
    story = JournalBuilder(name)
    story.take_lease(name)
    story.start(name)
    story.advance(60)
    story.validate(name)
    story.op(name, "validator", "validate", op=1)
    return story


def proof_of(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I3")


@pytest.mark.parametrize(
    ("otherwise", "problem"),
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
def test_evidence_that_is_wrong(otherwise: dict[str, Any], problem: str) -> None:
    story = underway()
    write = story.finish("n1", evidence=story.evidence("n1", **otherwise))
    assert proof_of(story) == [f"{WITHOUT} {problem}"]
    assert ("I3", "n1", write.revision) in violations_of(story.journal())


def test_no_evidence_and_no_record() -> None:
    story = underway()
    record = msgspec.structs.replace(story.records["n1"], state="upgrade-done", evidence=None)
    story.apply("n1", state("upgrade-done"), leased(None), cordoned(None), record=record)
    assert proof_of(story) == [f"{WITHOUT} its record has no evidence"]
    story = underway()
    gone = annotated("sluice.dev/upgrade", None)
    story.apply("n1", state("upgrade-done"), leased(None), cordoned(None), gone)
    assert proof_of(story) == [f"{WITHOUT} its record has no evidence"]


def test_a_reboot_between_evidence_and_release() -> None:
    story = underway()
    evidence = story.evidence("n1")
    story.reboot("n1", "second")
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of boot boot-n1, but the node runs boot second"
    ]


def test_what_no_validator_wrote_down() -> None:
    story = underway()
    story.entries.clear()
    story.finish("n1")
    assert proof_of(story) == [
        f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SUPERSEDED])
def test_what_the_validator_wrote_down_otherwise(outcome: Outcome) -> None:
    story = underway()
    story.entries.clear()
    story.op("n1", "validator", "validate", op=1, outcome=outcome)
    story.finish("n1")
    assert len(proof_of(story)) == 1


def test_what_the_validator_wrote_down_later() -> None:
    story = underway()
    story.entries.clear()
    story.finish("n1")
    story.advance(10)
    story.op("n1", "validator", "validate", op=1)
    assert len(proof_of(story)) == 1


def test_a_failed_node_that_ages_into_success() -> None:
    story = underway()
    story.fail("n1")
    story.advance(60)
    story.finish("n1", evidence=story.evidence("n1"))
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def test_a_failed_node_that_is_merely_uncordoned() -> None:
    story = underway()
    story.fail("n1")
    story.apply("n1", cordoned(None), state("upgrade-required"))
    assert len(proof_of(story)) == 1


def test_a_record_that_says_no_state_leaves_it_to_the_label() -> None:
    story = underway()
    record = msgspec.structs.replace(story.records["n1"], state="")
    story.apply("n1", state("upgrade-failed"), leased(None), record=record)
    assert violations_of(story.journal()) == []
    story.apply("n1", cordoned(None), record=record)
    assert len(proof_of(story)) == 1


@pytest.mark.parametrize("operation", [Operation.SAME_LABEL, Operation.VALIDATE])
def test_a_failed_node_whose_retry_comes_to_nothing_keeps_its_cordon(operation: Operation) -> None:
    story = underway()
    story.fail("n1")
    story.take_lease("n1", operation=operation, cordon=False)
    story.release_unchanged("n1", cordoned(True))
    assert violations_of(story.journal(failure_threshold=2)) == []
    story.take_lease("n1", operation=operation, cordon=False)
    story.release_unchanged("n1")
    assert len(proof_of(story)) == 1


def test_but_one_that_a_person_uncordoned_is_his() -> None:
    story = underway()
    story.fail("n1")
    story.cordon("n1", False)
    for _ in range(2):
        story.take_lease("n1", operation=Operation.SAME_LABEL)
        story.release_unchanged("n1")
    assert violations_of(story.journal(failure_threshold=2)) == []
    story.take_lease("n1", operation=Operation.SAME_LABEL)
    story.start("n1", restart=True)
    story.release_unchanged("n1")
    assert len(proof_of(story)) == 1


def test_a_change_is_released_on_proof_alone_even_cordoned() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.take_lease("n1")
    story.start("n1")
    story.release_unchanged("n1", cordoned(True))
    assert len(proof_of(story)) == 1


def test_a_failed_node_is_done_after_a_new_validation() -> None:
    story = underway()
    story.fail("n1")
    story.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1")
    assert violations_of(story.journal()) == []


def test_a_release_after_the_driver_label_moved() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    write = story.release_unchanged("n1")
    assert ("I3", "n1", write.revision) in violations_of(story.journal())
    assert proof_of(story) == [f"{WITHOUT} its record has no evidence"]


def test_a_scheduler_that_forgets_that_it_moved_the_label() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.records["n1"] = msgspec.structs.replace(story.records["n1"], started=False)
    story.apply("n1", record=story.records["n1"])
    write = story.release_unchanged("n1")
    assert ("I3", "n1", write.revision) in violations_of(story.journal())


def test_a_cordon_that_is_dropped_midway() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.apply("n1", cordoned(None), record=story.records["n1"])
    assert len(proof_of(story)) == 1


def test_a_label_that_was_stamped_again_makes_the_proof_void() -> None:
    story = underway()
    evidence = story.evidence("n1")
    story.advance(10)
    story.label("n1", "sluice.dev/driver", None)
    story.start("n1")
    story.validate("n1")
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of 1000060, older than the last change of the driver"
    ]


@pytest.mark.parametrize(("at", "problems"), [(-10.0, 1), (30.0, 0)])
def test_a_driver_that_was_restarted_under_its_label_makes_it_void_too(
    at: float, problems: int
) -> None:
    story = underway()
    story.finish("n1")
    story.advance(100)
    story.take_lease("n1", operation=Operation.SAME_LABEL)
    started = story.time
    story.start("n1", restart=True)
    story.advance(60)
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", evidence=story.evidence("n1", at=started + at))
    assert len(proof_of(story)) == problems


def test_and_one_that_is_restarted_with_the_lease() -> None:
    story = underway()
    story.fail("n1")
    story.advance(100)
    story.take_lease("n1", operation=Operation.RESTART, started=True)
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", evidence=story.evidence("n1", at=story.time - 10))
    assert len(proof_of(story)) == 1


def test_a_label_that_is_another_by_then_is_what_needs_proof() -> None:
    story = underway()
    evidence = story.evidence("n1")
    story.label("n1", "sluice.dev/driver", "mine")
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is for label 'main-t2-ubuntu', but the node runs 'mine'"
    ]


@pytest.mark.parametrize(("label", "problems"), [("as-it-came", 0), ("other", 1)])
def test_without_a_driver_label_the_record_says_what_was_to_be_proven(
    label: str, problems: int
) -> None:
    story = JournalBuilder()
    story.node("n1", driver="")
    story.take_lease("n1", operation=Operation.VALIDATE, cordon=False, label="as-it-came")
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", evidence=story.evidence("n1", label=label))
    assert len(proof_of(story)) == problems


def test_what_a_validator_wrote_down_in_another_boot() -> None:
    story = underway()
    story.reboot("n1", "second")
    story.finish("n1", evidence=story.evidence("n1"))
    assert proof_of(story) == [
        f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
    ]


@pytest.mark.parametrize("failed", [False, True])
def test_how_a_node_stood_at_the_start_counts(failed: bool) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    if failed:
        story.fail("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    story.apply("n1", cordoned(None), record=story.records["n1"])
    journal = story.journal(revisions=tuple(story.revisions[begun:]), start=start)
    assert messages(journal, "I3") == [f"{WITHOUT} its record has no evidence"]


def test_who_was_merely_leased_at_the_start_needs_no_proof() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    story.release_unchanged("n1")
    journal = story.journal(revisions=tuple(story.revisions[begun:]), start=start)
    assert messages(journal, "I3") == []


def test_a_first_bring_up_needs_proof_too() -> None:
    story = JournalBuilder()
    story.node("n1", driver="")
    story.take_lease("n1", operation=Operation.BRING_UP, cordon=False)
    story.start("n1")
    story.finish("n1", evidence=story.evidence("n1", passed=False))
    assert proof_of(story)[0].endswith("its evidence is of a failed validation")


def test_a_driver_pod_that_was_gone_for_long() -> None:
    story = underway()
    story.pod("pod-n1-new")
    story.objects["Pod", "pod-n1-new"]["metadata"]["uid"] = "pod-n1-new"
    story.revisions[-1] = msgspec.structs.replace(story.revisions[-1], uid="pod-n1-new")
    story.write("Pod", "pod-n1-new", labelled("a/b", "c"), manager="kubelet")
    story.advance(1000)
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1")
    assert proof_of(story) == []
    story.take_lease("n1")
    story.start("n1")
    story.op("n1", "validator", "validate", op=1)
    evidence = story.evidence("n1")
    story.delete("Pod", "pod-n1-new", by="kubelet")
    story.advance(90)
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == []
    story.take_lease("n1")
    story.start("n1")
    story.advance(1)
    late = story.evidence("n1", at=story.time)
    story.op("n1", "validator", "validate", op=1)
    story.finish("n1", evidence=late)
    assert proof_of(story) == [
        f"{WITHOUT} the driver pod pod-n1-new of its evidence was deleted at 1001060"
    ]


def test_a_release_before_the_start_needs_no_proof() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1")
    assert violations_of(story.journal()) == []


def test_a_state_that_somebody_edited_is_put_back_without_a_new_proof() -> None:
    story = underway()
    story.finish("n1")
    story.reboot("n1", "second")
    story.label("n1", "nvidia.com/gpu-driver-upgrade-state", "drain-required")
    story.apply("n1", state("upgrade-done"), record=story.records["n1"])
    assert violations_of(story.journal()) == []


def test_a_wish_that_is_withdrawn_needs_the_proof_that_the_node_has() -> None:
    story = underway()
    story.finish("n1")
    proven = story.records["n1"]
    story.mark_required("n1")
    story.apply("n1", state("upgrade-done"), record=proven)
    assert violations_of(story.journal()) == []
    story.mark_required("n1")
    story.reboot("n1", "second")
    story.apply("n1", state("upgrade-done"), record=proven)
    assert len(proof_of(story)) == 1


def test_a_validation_that_is_broken_off_proves_nothing() -> None:
    story = underway()
    story.finish("n1")
    evidence = story.evidence("n1")
    story.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    story.finish("n1", evidence=evidence)
    assert proof_of(story) == [
        f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
    ]


def removal() -> JournalBuilder:
    story = JournalBuilder("n1")
    story.take_lease("n1", operation=Operation.REMOVE, target="", label="")
    story.start("n1")
    return story


def dropped(story: JournalBuilder) -> None:
    gone = annotated("sluice.dev/upgrade", None)
    story.apply("n1", state(None), leased(None), cordoned(None), gone)


def test_a_removal_is_proven_by_the_driver_agent() -> None:
    story = removal()
    story.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    dropped(story)
    assert violations_of(story.journal()) == []


def test_a_failed_node_that_is_released_from_its_validation() -> None:
    story = underway()
    story.fail("n1")
    story.take_lease("n1", operation=Operation.VALIDATE, cordon=False)
    story.release_unchanged("n1")
    assert len(proof_of(story)) == 1


def test_a_removal_that_another_component_ended() -> None:
    story = removal()
    story.op("n1", "discovery", "swap", op=1)
    dropped(story)
    assert len(proof_of(story)) == 1


@pytest.mark.parametrize("outcome", [None, Outcome.FAILED])
def test_a_removal_that_no_driver_agent_ended(outcome: Outcome | None) -> None:
    story = removal()
    if outcome:
        story.op("n1", "driver", "swap", op=1, outcome=outcome)
    dropped(story)
    assert proof_of(story) == [
        "n1 was released without proof: no driver agent journaled a finished swap under token 1"
    ]


def test_a_removal_that_says_that_it_is_done_needs_the_proof_of_that() -> None:
    story = removal()
    story.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    story.finish("n1", evidence=story.evidence("n1", passed=False))
    assert proof_of(story) == [f"{WITHOUT} its evidence is of a failed validation"]


def test_a_person_who_has_us_adopt_a_node_decides_himself() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.annotate("n1", "sluice.dev/upgrade", None)
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    record = NodeRecord(node_uid="uid-n1", epoch=1, token=1, state=UpgradeState.UPGRADE_REQUIRED)
    cleared = annotated(REQUEST_ANNOTATION, "")
    story.apply("n1", leased(None), state("upgrade-required"), cleared, record=record)
    assert violations_of(story.journal()) == []
    story.apply("n1", cordoned(None), annotated(REQUEST_ANNOTATION, None), record=record)
    assert len(proof_of(story)) == 1


def test_without_boot_ids_it_says_what_it_could_not_judge() -> None:
    story = JournalBuilder("n1")
    del story.revisions[0].changed["status.nodeInfo.bootID"]
    story.upgrade("n1")
    verdict = judge(story.journal())
    assert verdict.violations == ()
    assert verdict.not_judged == {"I3": "status.nodeInfo.bootID of n1"}
