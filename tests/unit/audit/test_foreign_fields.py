"""I4, all other fields: fields of others stay, except for the listed takeovers."""

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


def i4_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I4")


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
def test_labels_and_annotations_of_others_are_not_changed(change: Change, path: str) -> None:
    builder = JournalBuilder("n1")
    builder.label("n1", "team/colour", "blue")
    builder.annotate("n1", "team/note", "keep")
    write = builder.apply("n1", change)
    assert violations_of(builder.journal()) == [("I4", "n1", write.revision)]
    assert i4_violations(builder)[0].startswith(
        f"n1: {path}, last written by kubectl, was changed by us from "
    )


def test_taints_of_others_are_not_changed() -> None:
    builder = JournalBuilder("n1")
    builder.write("Node", "n1", tainted("NoSchedule"), manager="kubectl")
    builder.apply("n1", lambda node: node["spec"].pop("taints"))
    assert len(i4_violations(builder)) == 3


def test_fields_without_other_writers_may_be_changed() -> None:
    builder = JournalBuilder("n1")
    builder.apply("n1", labelled("nvidia.com/gpu-driver-upgrade-state", "upgrade-required"))
    builder.apply("n1", labelled("nvidia.com/gpu-driver-upgrade-state", None))
    assert violations_of(builder.journal()) == []


@pytest.mark.parametrize("key", [REQUEST_ANNOTATION, REQUESTED_ANNOTATION, SAFE_LOAD_ANNOTATION])
def test_a_request_may_be_cleared_and_dropped_but_not_set(key: str) -> None:
    builder = JournalBuilder("n1")
    builder.annotate("n1", key, "true")
    builder.apply("n1", annotated(key, ""))
    builder.apply("n1", annotated(key, None))
    builder.annotate("n1", key, "true")
    assert i4_violations(builder) == []
    builder.apply("n1", annotated(key, "done"))
    assert i4_violations(builder)[0].endswith("last written by kubectl, was set by us to 'done'")


def rested() -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.upgrade("n1")
    return builder


def take_back(builder: JournalBuilder) -> None:
    builder.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
    builder.apply("n1", state("upgrade-done"), record=builder.records["n1"])


def test_an_edited_state_is_reverted_once_per_attempt() -> None:
    builder = rested()
    take_back(builder)
    assert violations_of(builder.journal()) == []
    take_back(builder)
    assert i4_violations(builder) == [
        f'n1: metadata.labels["{STATE_LABEL}"], last written by kubectl, {AGAIN}'
    ]


def test_an_edit_reverted_by_its_author_does_not_count() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    right = builder.records["n1"].state
    for _ in range(3):
        builder.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
        builder.label("n1", STATE_LABEL, right)
    builder.start("n1")
    builder.label("n1", STATE_LABEL, "")
    builder.label("n1", STATE_LABEL, builder.records["n1"].state)
    builder.validate("n1")
    assert violations_of(builder.journal()) == []


def test_an_edited_state_is_reverted_again_in_the_next_attempt() -> None:
    builder = rested()
    take_back(builder)
    builder.upgrade("n1")
    take_back(builder)
    assert violations_of(builder.journal()) == []


def test_the_state_upgrade_required_is_a_request_each_time() -> None:
    builder = rested()
    for _ in range(3):
        builder.label("n1", STATE_LABEL, UpgradeState.UPGRADE_REQUIRED)
        builder.apply("n1", state("upgrade-done"), record=builder.records["n1"])
    assert violations_of(builder.journal()) == []


def test_a_forgotten_node_is_not_ours() -> None:
    builder = rested()
    builder.annotate("n1", REQUEST_ANNOTATION, "forget")
    builder.apply(
        "n1", state(None), annotated(RECORD_ANNOTATION, None), annotated(REQUEST_ANNOTATION, "")
    )
    for _ in range(2):
        builder.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
        builder.apply("n1", state(None))
    assert i4_violations(builder) == []


def test_a_driver_label_edited_in_flight_is_reverted_once() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.label("n1", DRIVER_LABEL, "mine")
    builder.apply("n1", labelled(DRIVER_LABEL, LABEL), record=builder.records["n1"])
    assert violations_of(builder.journal()) == []
    builder.label("n1", DRIVER_LABEL, None)
    builder.label("n1", STATE_LABEL, None)
    builder.apply("n1", labelled(DRIVER_LABEL, LABEL), state("x"), record=builder.records["n1"])
    assert len(i4_violations(builder)) == 2


def test_a_driver_label_edited_at_rest_may_be_moved_under_a_lease() -> None:
    builder = JournalBuilder("n1")
    for _ in range(3):
        builder.take_lease("n1")
        builder.label("n1", DRIVER_LABEL, "mine")
        builder.start("n1")
        builder.pass_validation("n1")
        builder.finish("n1")
        builder.label("n1", DRIVER_LABEL, None)
    assert violations_of(builder.journal()) == []


def test_a_state_left_by_the_gpu_operator_is_adopted() -> None:
    builder = JournalBuilder("n1")
    builder.label("n1", STATE_LABEL, UpgradeState.VALIDATION_REQUIRED, by="gpu-operator")
    builder.mark_required("n1")
    assert violations_of(builder.journal()) == []


@pytest.mark.parametrize("value", [None, "{}", "no record"])
def test_a_node_without_its_record_is_not_ours_until_a_person_asks(
    value: str | None,
) -> None:
    builder = rested()
    record = builder.records["n1"]
    builder.annotate("n1", RECORD_ANNOTATION, value)
    builder.apply("n1", state("upgrade-required"))
    assert i4_violations(builder) == [
        "n1: we wrote to it although its record is lost and there is no adopt or forget request"
    ]
    del builder.revisions[-1]
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    builder.apply("n1", annotated(REQUEST_ANNOTATION, ""), record=record)
    builder.apply("n1", annotated(REQUEST_ANNOTATION, None), record=record)
    assert i4_violations(builder) == []


def test_a_node_is_written_by_apply_and_never_created() -> None:
    builder = JournalBuilder("n1")
    builder.apply("n1", state("upgrade-required"), verb=Verb.PATCH)
    builder.apply("n9", labelled("a/b", "c"), code=201)
    assert i4_violations(builder) == [
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
def test_our_other_services_take_over_labels_only_from_the_gpu_operator(
    owner: str, key: str, problems: int
) -> None:
    builder = JournalBuilder("n1")
    verb = Verb.APPLY if owner == MANAGER else Verb.PATCH
    builder.write("Node", "n1", labelled(key, "true"), manager=owner, verb=verb)
    builder.label("n1", key, "paused-for-driver-upgrade", by="sluice-discovery")
    assert len(i4_violations(builder)) == problems


@pytest.mark.parametrize(("signed", "problems"), [(True, 1), (False, 0)])
def test_managed_fields_show_whether_a_node_was_ours_at_the_start(
    signed: bool, problems: int
) -> None:
    builder = rested()
    fields = {"f:metadata": {"f:labels": {f"f:{STATE_LABEL}": {}}}}
    whole = builder.objects["Node", "n1"]
    start: dict[str, Any] = {"kind": "Node", **whole, "metadata": {**whole["metadata"]}}
    owner = MANAGER if signed else "kubelet"
    start["metadata"]["managedFields"] = [{"manager": owner, "fieldsV1": fields}]
    begun = len(builder.revisions)
    take_back(builder)
    take_back(builder)
    later = builder.journal(revisions=tuple(builder.revisions[begun:]), start=(start,))
    assert len(messages(later, "I4")) == problems


def test_a_lost_record_stays_lost_after_writes_of_others() -> None:
    builder = rested()
    builder.annotate("n1", RECORD_ANNOTATION, None)
    builder.label("n1", "team/colour", "red")
    builder.apply("n1", state("upgrade-required"))
    assert len(i4_violations(builder)) == 1


def test_an_adopt_request_covers_the_state() -> None:
    builder = rested()
    for _ in range(3):
        builder.label("n1", STATE_LABEL, UpgradeState.DRAIN_REQUIRED)
        builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
        cleared = annotated(REQUEST_ANNOTATION, "")
        builder.apply("n1", state("upgrade-done"), cleared, record=builder.records["n1"])
    assert i4_violations(builder) == []


def test_a_driver_label_edited_after_a_failure_is_not_in_flight() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.fail("n1")
    for _ in range(3):
        builder.label("n1", DRIVER_LABEL, "mine")
        builder.apply("n1", labelled(DRIVER_LABEL, LABEL), record=builder.records["n1"])
    assert i4_violations(builder) == []


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
def test_a_node_without_fields_of_ours_is_like_a_new_one(
    garbled: bool, written: tuple[str, ...], problems: int
) -> None:
    builder = rested()
    builder.annotate("n1", RECORD_ANNOTATION, "garbled" if garbled else None)
    for key in written:
        builder.label("n1", key, "theirs")
    builder.apply("n1", state("upgrade-required"))
    lost = [message for message in i4_violations(builder) if "is lost" in message]
    assert len(lost) == problems


@pytest.mark.parametrize(("value", "problems"), [("theirs", 1), (None, 0)])
def test_a_driver_label_of_ours_counts_while_there_is_a_state(
    value: str | None, problems: int
) -> None:
    builder = rested()
    builder.annotate("n1", RECORD_ANNOTATION, None)
    builder.label("n1", STATE_LABEL, value)
    builder.apply("n1", state("upgrade-required"))
    lost = [message for message in i4_violations(builder) if "is lost" in message]
    assert len(lost) == problems


def test_a_node_under_an_upgrade_lease_is_ours() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.annotate("n1", RECORD_ANNOTATION, "garbled")
    for key in (STATE_LABEL, DRIVER_LABEL):
        builder.label("n1", key, "theirs")
    builder.apply("n1", state("upgrade-required"))
    assert any("is lost" in message for message in i4_violations(builder))
