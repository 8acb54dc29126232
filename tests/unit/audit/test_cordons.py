"""I4, the cordon: it is there at the end if somebody else wants it, and only then."""

import msgspec
import pytest

from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    STATE_LABEL,
    UpgradeState,
)
from tests.unit.audit.builders import (
    Change,
    JournalBuilder,
    annotated,
    cordoned,
    messages,
    violations_of,
)

CORDON = "spec.unschedulable"


def finish(story: JournalBuilder, *changes: Change) -> int:
    """From the lease on to done; whether the cordon stays is up to the API server."""
    story.take_lease("n1")
    story.start("n1")
    story.validate("n1")
    story.op("n1", "validator", "validate", op=1)
    return story.finish("n1", *changes).revision


def of_i4(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I4")


def test_a_persons_cordon_is_dropped() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    write = finish(story)
    assert of_i4(story) == ["n1 was uncordoned, although kubectl had cordoned it"]
    assert violations_of(story.journal()) == [("I4", "n1", write)]


def test_or_one_that_he_set_midway() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.cordon("n1", False)
    story.cordon("n1")
    story.release_unchanged("n1")
    assert of_i4(story) == ["n1 was uncordoned, although kubectl had cordoned it"]


def test_our_own_cordon_stays_behind() -> None:
    story = JournalBuilder("n1")
    finish(story, cordoned(True))
    assert of_i4(story) == ["n1 was released with our cordon left on it"]


def test_one_that_a_person_takes_away_midway_is_nobodys_any_more() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    story.take_lease("n1")
    story.cordon("n1", False)
    story.apply("n1", cordoned(True), record=story.records["n1"])
    story.release_unchanged("n1")
    assert violations_of(story.journal()) == []


@pytest.mark.parametrize(("stays", "problems"), [(True, 0), (None, 1)])
def test_the_label_that_keeps_a_cordon(stays: bool | None, problems: int) -> None:
    story = JournalBuilder("n1")
    story.label("n1", KEEP_CORDONED_LABEL, "true")
    finish(story, cordoned(stays))
    assert len(of_i4(story)) == problems


def test_a_failed_node_keeps_its_cordon_and_a_person_may_take_it_away() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.fail("n1")
    story.cordon("n1", False)
    assert violations_of(story.journal()) == []
    story.apply("n1", cordoned(True), record=story.records["n1"])
    assert of_i4(story) == ["n1 was cordoned without a lease, after kubectl had uncordoned it"]


def test_a_node_that_fails_is_cordoned_though_somebody_uncordoned_it_midway() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.cordon("n1", False)
    story.fail("n1", cordoned(True))
    assert violations_of(story.journal()) == []


def from_the_gpu_operator(
    state: UpgradeState, *, initially_cordoned: bool, now: bool = True
) -> JournalBuilder:
    story = JournalBuilder("n1")
    if now:
        story.cordon("n1", by="gpu-operator")
    story.label("n1", STATE_LABEL, state, by="gpu-operator")
    if initially_cordoned:
        story.annotate("n1", INITIALLY_CORDONED_ANNOTATION, "true", by="gpu-operator")
    story.mark_required("n1")
    return story


@pytest.mark.parametrize(
    ("state", "initially", "stays", "problems"),
    [
        (UpgradeState.DRAIN_REQUIRED, False, None, 0),
        (UpgradeState.DRAIN_REQUIRED, True, True, 0),
        (UpgradeState.DRAIN_REQUIRED, True, None, 1),
        (UpgradeState.DRAIN_REQUIRED, False, True, 1),
        (UpgradeState.UPGRADE_FAILED, False, None, 0),
        (UpgradeState.UPGRADE_DONE, False, None, 1),
        (UpgradeState.UPGRADE_DONE, False, True, 0),
        (UpgradeState.CORDON_REQUIRED, False, True, 0),
    ],
)
def test_the_cordon_of_the_gpu_operator_ends_and_that_of_a_person_stays(
    state: UpgradeState, initially: bool, stays: bool | None, problems: int
) -> None:
    story = from_the_gpu_operator(state, initially_cordoned=initially)
    finish(story, cordoned(stays), annotated(INITIALLY_CORDONED_ANNOTATION, None))
    assert len(of_i4(story)) == problems


def test_a_mark_of_a_cordon_that_is_there_no_more_means_nothing() -> None:
    story = from_the_gpu_operator(UpgradeState.DRAIN_REQUIRED, initially_cordoned=True, now=False)
    finish(story, annotated(INITIALLY_CORDONED_ANNOTATION, None))
    assert of_i4(story) == []


def managed(story: JournalBuilder, owners: dict[str, list[str]]) -> list[dict[str, object]]:
    """The Nodes as they are now, with these owners of `spec.unschedulable`."""
    return [
        {
            "kind": kind,
            **whole,
            "metadata": {
                **whole["metadata"],
                "managedFields": [
                    {"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
                    for manager in owners[name]
                ],
            },
        }
        for (kind, name), whole in story.objects.items()
    ]


@pytest.mark.parametrize(
    ("owners", "problems"),
    [
        (["sluice-scheduler"], 0),
        (["kubectl"], 1),
        (["sluice-scheduler", "kubectl"], 1),
        ([], 0),
    ],
)
def test_whose_cordon_was_there_at_the_start_is_in_the_managed_fields(
    owners: list[str], problems: int
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    start = managed(story, {"n1": owners})
    begun = len(story.revisions)
    story.release_unchanged("n1")
    journal = story.journal(revisions=tuple(story.revisions[begun:]), start=tuple(start))
    assert len(messages(journal, "I4")) == problems


def test_a_node_that_is_first_seen_midway_is_not_judged() -> None:
    story = JournalBuilder("n1")
    story.cordon("n1")
    finish(story)
    journal = msgspec.structs.replace(story.journal(), revisions=tuple(story.revisions[3:]))
    assert messages(journal, "I4") == []
