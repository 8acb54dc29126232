"""I4, all other fields: what somebody else wrote stays, but for the takeovers that are ours."""

from typing import Any

import pytest

from libs.contracts.journal import Verb
from libs.contracts.node import (
    DRIVER_LABEL,
    MANAGER,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    STATE_LABEL,
    UpgradeState,
)
from tests.unit.audit.builders import (
    LABEL,
    Change,
    JournalBuilder,
    annotated,
    labelled,
    messages,
    state,
    violations_of,
)

AGAIN = "was reverted by us for the second time in one attempt"


def of_i4(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I4")


def tainted(effect: str) -> Change:
    def change(node: dict[str, dict[str, object]]) -> None:
        node.setdefault("spec", {})["taints"] = [{"key": "team/x", "effect": effect, "value": "y"}]

    return change


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (labelled("team/colour", "red"), 'metadata.labels["team/colour"]'),
        (labelled("team/colour", None), 'metadata.labels["team/colour"]'),
        (annotated("team/note", "x"), 'metadata.annotations["team/note"]'),
        (annotated("team/note", None), 'metadata.annotations["team/note"]'),
    ],
)
def test_labels_and_annotations_of_others(change: Change, path: str) -> None:
    story = JournalBuilder("n1")
    story.label("n1", "team/colour", "blue")
    story.annotate("n1", "team/note", "keep")
    write = story.apply("n1", change)
    assert violations_of(story.journal()) == [("I4", "n1", write.revision)]
    assert of_i4(story)[0].startswith(
        f"n1: {path}, last written by kubectl, was changed by us from "
    )


def test_taints_of_others() -> None:
    story = JournalBuilder("n1")
    story.write("Node", "n1", tainted("NoSchedule"), manager="kubectl")
    story.apply("n1", lambda node: node["spec"].pop("taints"))
    assert len(of_i4(story)) == 3


def test_what_nobody_else_wrote_is_ours_to_change() -> None:
    story = JournalBuilder("n1")
    story.apply("n1", labelled("nvidia.com/gpu-driver-upgrade-state", "upgrade-required"))
    story.apply("n1", labelled("nvidia.com/gpu-driver-upgrade-state", None))
    assert violations_of(story.journal()) == []


@pytest.mark.parametrize("key", [REQUEST_ANNOTATION, REQUESTED_ANNOTATION, SAFE_LOAD_ANNOTATION])
def test_a_request_is_cleared_and_then_dropped_but_never_made(key: str) -> None:
    story = JournalBuilder("n1")
    story.annotate("n1", key, "true")
    story.apply("n1", annotated(key, ""))
    story.apply("n1", annotated(key, None))
    story.annotate("n1", key, "true")
    assert of_i4(story) == []
    story.apply("n1", annotated(key, "done"))
    assert of_i4(story)[0].endswith("last written by kubectl, was set by us to 'done'")


def rested() -> JournalBuilder:
    story = JournalBuilder("n1")
    story.upgrade("n1")
    return story


def take_back(story: JournalBuilder) -> None:
    story.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
    story.apply("n1", state("upgrade-done"), record=story.records["n1"])


def test_an_edited_state_is_taken_back_once() -> None:
    story = rested()
    take_back(story)
    assert violations_of(story.journal()) == []
    take_back(story)
    assert of_i4(story) == [
        f'n1: metadata.labels["{STATE_LABEL}"], last written by kubectl, {AGAIN}'
    ]


def test_who_puts_it_right_again_himself_has_not_edited_it() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    right = story.records["n1"].state
    for _ in range(3):
        story.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
        story.label("n1", STATE_LABEL, right)
    story.start("n1")
    story.label("n1", STATE_LABEL, "")
    story.label("n1", STATE_LABEL, story.records["n1"].state)
    story.validate("n1")
    assert violations_of(story.journal()) == []


def test_and_once_again_in_the_next_attempt() -> None:
    story = rested()
    take_back(story)
    story.upgrade("n1")
    take_back(story)
    assert violations_of(story.journal()) == []


def test_a_state_of_upgrade_required_is_a_request_however_often() -> None:
    story = rested()
    for _ in range(3):
        story.label("n1", STATE_LABEL, UpgradeState.UPGRADE_REQUIRED)
        story.apply("n1", state("upgrade-done"), record=story.records["n1"])
    assert violations_of(story.journal()) == []


def test_a_node_that_was_forgotten_is_anybodys() -> None:
    story = rested()
    story.annotate("n1", REQUEST_ANNOTATION, "forget")
    story.apply(
        "n1", state(None), annotated(RECORD_ANNOTATION, None), annotated(REQUEST_ANNOTATION, "")
    )
    for _ in range(2):
        story.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
        story.apply("n1", state(None))
    assert of_i4(story) == []


def test_a_driver_label_that_is_edited_in_flight_is_stamped_again_once() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.label("n1", DRIVER_LABEL, "mine")
    story.apply("n1", labelled(DRIVER_LABEL, LABEL), record=story.records["n1"])
    assert violations_of(story.journal()) == []
    story.label("n1", DRIVER_LABEL, None)
    story.label("n1", STATE_LABEL, None)
    story.apply("n1", labelled(DRIVER_LABEL, LABEL), state("x"), record=story.records["n1"])
    assert len(of_i4(story)) == 2


def test_one_that_is_edited_before_the_start_or_at_rest_is_moved_under_a_lease() -> None:
    story = JournalBuilder("n1")
    for _ in range(3):
        story.take_lease("n1")
        story.label("n1", DRIVER_LABEL, "mine")
        story.start("n1")
        story.validate("n1")
        story.op("n1", "validator", "validate", op=1)
        story.finish("n1")
        story.label("n1", DRIVER_LABEL, None)
    assert violations_of(story.journal()) == []


def test_a_state_that_the_gpu_operator_left_is_taken_over() -> None:
    story = JournalBuilder("n1")
    story.label("n1", STATE_LABEL, UpgradeState.VALIDATION_REQUIRED, by="gpu-operator")
    story.mark_required("n1")
    assert violations_of(story.journal()) == []


@pytest.mark.parametrize("value", [None, "{}", "no record"])
def test_a_node_whose_record_was_lost_is_not_ours_until_a_person_says_so(
    value: str | None,
) -> None:
    story = rested()
    record = story.records["n1"]
    story.annotate("n1", RECORD_ANNOTATION, value)
    story.apply("n1", state("upgrade-required"))
    assert of_i4(story) == [
        "n1: we wrote to it although its record is lost and there is no adopt or forget request"
    ]
    del story.revisions[-1]
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    story.apply("n1", annotated(REQUEST_ANNOTATION, ""), record=record)
    story.apply("n1", annotated(REQUEST_ANNOTATION, None), record=record)
    assert of_i4(story) == []


def test_a_node_is_written_by_apply_and_never_made() -> None:
    story = JournalBuilder("n1")
    story.apply("n1", state("upgrade-required"), verb=Verb.PATCH)
    story.apply("n9", labelled("a/b", "c"), code=201)
    assert of_i4(story) == [
        "n1: we wrote it by patch instead of by an apply, which alone tracks owners",
        "n9: our apply created the Node: an apply must name the uid of an existing Node",
    ]


@pytest.mark.parametrize(
    ("owner", "key", "problems"),
    [
        ("kubectl", "nvidia.com/gpu.deploy.dcgm", 1),
        ("gpu-operator", "nvidia.com/gpu.deploy.dcgm", 0),
        ("nfd-master", "feature.node.kubernetes.io/pci-10de.present", 0),
        ("gpu-operator", "team/colour", 1),
        ("sluice-discovery", "nvidia.com/gpu.deploy.dcgm", 0),
        (MANAGER, "nvidia.com/gpu.deploy.dcgm", 1),
    ],
)
def test_our_other_services_inherit_from_the_gpu_operator_and_from_nobody_else(
    owner: str, key: str, problems: int
) -> None:
    story = JournalBuilder("n1")
    verb = Verb.APPLY if owner == MANAGER else Verb.PATCH
    story.write("Node", "n1", labelled(key, "true"), manager=owner, verb=verb)
    story.label("n1", key, "paused-for-driver-upgrade", by="sluice-discovery")
    assert len(of_i4(story)) == problems


@pytest.mark.parametrize(("signed", "problems"), [(True, 1), (False, 0)])
def test_whose_node_it_is_at_the_start_is_in_the_managed_fields(
    signed: bool, problems: int
) -> None:
    story = rested()
    fields = {"f:metadata": {"f:labels": {f"f:{STATE_LABEL}": {}}}}
    whole = story.objects["Node", "n1"]
    start: dict[str, Any] = {"kind": "Node", **whole, "metadata": {**whole["metadata"]}}
    owner = MANAGER if signed else "kubelet"
    start["metadata"]["managedFields"] = [{"manager": owner, "fieldsV1": fields}]
    begun = len(story.revisions)
    take_back(story)
    take_back(story)
    later = story.journal(revisions=tuple(story.revisions[begun:]), start=(start,))
    assert len(messages(later, "I4")) == problems


def test_a_lost_record_stays_lost_whatever_others_write_then() -> None:
    story = rested()
    story.annotate("n1", RECORD_ANNOTATION, None)
    story.label("n1", "team/colour", "red")
    story.apply("n1", state("upgrade-required"))
    assert len(of_i4(story)) == 1


def test_who_asks_us_to_adopt_a_node_asks_for_its_state_too() -> None:
    story = rested()
    for _ in range(3):
        story.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
        story.annotate("n1", REQUEST_ANNOTATION, "adopt")
        cleared = annotated(REQUEST_ANNOTATION, "")
        story.apply("n1", state("upgrade-done"), cleared, record=story.records["n1"])
    assert of_i4(story) == []


def test_a_driver_label_that_is_edited_after_a_failure_is_not_in_flight() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.fail("n1")
    for _ in range(3):
        story.label("n1", DRIVER_LABEL, "mine")
        story.apply("n1", labelled(DRIVER_LABEL, LABEL), record=story.records["n1"])
    assert of_i4(story) == []


@pytest.mark.parametrize(
    ("garbled", "written", "problems"),
    [
        (True, (STATE_LABEL, DRIVER_LABEL), 0),
        (True, (STATE_LABEL,), 1),
        (True, (DRIVER_LABEL,), 1),
        (False, (STATE_LABEL, DRIVER_LABEL), 0),
        (False, (DRIVER_LABEL,), 1),
        (False, (), 1),
    ],
)
def test_who_bears_no_sign_of_ours_any_more_is_like_a_new_one(
    garbled: bool, written: tuple[str, ...], problems: int
) -> None:
    story = rested()
    story.annotate("n1", RECORD_ANNOTATION, "garbled" if garbled else None)
    for key in written:
        story.label("n1", key, "theirs")
    story.apply("n1", state("upgrade-required"))
    lost = [message for message in of_i4(story) if "is lost" in message]
    assert len(lost) == problems


@pytest.mark.parametrize(("value", "problems"), [("theirs", 1), (None, 0)])
def test_a_driver_label_alone_is_a_sign_as_long_as_there_is_a_state(
    value: str | None, problems: int
) -> None:
    story = rested()
    story.annotate("n1", RECORD_ANNOTATION, None)
    story.label("n1", STATE_LABEL, value)
    story.apply("n1", state("upgrade-required"))
    lost = [message for message in of_i4(story) if "is lost" in message]
    assert len(lost) == problems


def test_under_a_lease_it_is_ours_whoever_wrote_the_rest() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.annotate("n1", RECORD_ANNOTATION, "garbled")
    for key in (STATE_LABEL, DRIVER_LABEL):
        story.label("n1", key, "theirs")
    story.apply("n1", state("upgrade-required"))
    assert any("is lost" in message for message in of_i4(story))
