"""I2 on Nodes: one lease at a time, and nothing without one."""

import msgspec
import pytest

from libs.contracts.message import encode
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    LeaseOwner,
    NodeLease,
    Operation,
)
from tests.unit.audit.builders import (
    OLD_LABEL,
    JournalBuilder,
    annotated,
    cordoned,
    labelled,
    leased,
    messages,
    violations_of,
)


def test_a_token_that_was_given_before() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1")
    write = story.take_lease("n1", token=1)
    assert violations_of(story.journal()) == [("I2", "n1", write.revision)]
    assert messages(story.journal()) == [
        "n1: a lease started with token 1, although token 1 was already used"
    ]


def test_tokens_of_other_owners_count_too() -> None:
    story = JournalBuilder("n1")
    lease = encode(story.lease("n1", 7, LeaseOwner.HUMAN)).decode()
    story.annotate("n1", LEASE_ANNOTATION, lease)
    story.annotate("n1", LEASE_ANNOTATION, None)
    story.take_lease("n1")
    assert messages(story.journal(), "I2") == [
        "n1: a lease started with token 1, although token 7 was already used"
    ]


@pytest.mark.parametrize(("heard", "problems"), [(False, 0), (True, 1)])
def test_a_token_of_which_nobody_is_left_who_knows(heard: bool, problems: int) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    if heard:
        story.op("n1", "plugin", "quiesce", op=1)
    story.release_unchanged("n1")
    story.annotate("n1", RECORD_ANNOTATION, "garbled")
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    story.take_lease("n1", token=1)
    assert len(messages(story.journal(), "I2")) == problems


def test_a_second_lease_before_the_first_has_ended() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.take_lease("n1")
    assert messages(story.journal(), "I2") == [
        "n1: token 2 of upgrade replaced token 1, which was still held"
    ]


@pytest.mark.parametrize("owner", [LeaseOwner.HUMAN, LeaseOwner.REPAIR, LeaseOwner.MIG])
def test_the_lease_of_another_owner(owner: LeaseOwner) -> None:
    story = JournalBuilder("n1")
    story.annotate("n1", LEASE_ANNOTATION, encode(story.lease("n1", 1, owner)).decode())
    story.take_lease("n1", token=2)
    assert messages(story.journal(), "I2") == [
        f"n1: the lease of {owner.value} with token 1 was changed by us"
    ]


def test_a_person_may_end_a_lease_and_the_next_one_begins() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.annotate("n1", LEASE_ANNOTATION, None)
    story.take_lease("n1")
    assert violations_of(story.journal()) == []


def test_another_service_of_ours_may_not() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.label("n1", "nvidia.com/gpu.count", "8", by="sluice-discovery")
    assert violations_of(story.journal()) == []
    story.annotate("n1", LEASE_ANNOTATION, None, by="sluice-driver")
    assert messages(story.journal(), "I2") == ["n1: sluice-driver changed the lease of an upgrade"]


def test_a_lease_of_an_earlier_node_of_that_name_is_void() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.delete("Node", "n1")
    story.node("n1", uid="uid-other")
    void = NodeLease(node_uid="uid-n1", owner=LeaseOwner.HUMAN, token=9, since=0.0)
    story.annotate("n1", LEASE_ANNOTATION, encode(void).decode())
    story.take_lease("n1", token=1)
    assert violations_of(story.journal()) == []


def test_and_so_is_its_record() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.start("n1")
    story.fail("n1")
    record = encode(story.records["n1"]).decode()
    story.delete("Node", "n1")
    story.node("n1", uid="uid-other")
    story.annotate("n1", RECORD_ANNOTATION, record)
    lease = story.take_lease("n1", token=1)
    story.revisions = story.revisions[-3:]
    assert violations_of(story.journal(max_unavailable=0)) == [("I1", "n1", lease.revision)]


def test_a_lease_that_is_written_anew_with_its_token_is_the_same() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.advance(60)
    story.apply("n1", leased(story.lease("n1", 1)), record=story.records["n1"])
    assert violations_of(story.journal()) == []


def test_a_record_with_another_token_and_none_at_all() -> None:
    story = JournalBuilder("n1", "n2")
    story.take_lease("n1")
    story.apply("n1", leased(story.lease("n1", 1)), record=story.records["n1"])
    story.apply("n2", leased(story.lease("n2", 1)))
    assert messages(story.journal(max_unavailable=2), "I2") == [
        "n2: it has a lease with token 1 but no record"
    ]
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1")
    story.apply("n1", leased(story.lease("n1", 2)), cordoned(True), record=story.records["n1"])
    assert messages(story.journal(), "I2") == [
        "n1: its record has token 1, but its lease has token 2"
    ]


def test_a_driver_label_and_a_cordon_without_a_lease() -> None:
    story = JournalBuilder("n1")
    story.apply("n1", labelled(DRIVER_LABEL, "other"), cordoned(True))
    assert messages(story.journal(), "I2") == [
        "n1: it was cordoned without a lease",
        f"n1: its driver label went from '{OLD_LABEL}' to 'other' without a lease",
    ]


def test_nor_is_the_label_of_a_node_without_a_record_dropped() -> None:
    story = JournalBuilder("n1")
    story.apply("n1", labelled(DRIVER_LABEL, None))
    assert len(messages(story.journal(), "I2")) == 1


def test_what_a_person_asked_us_to_forget_is_dropped_without_a_lease() -> None:
    story = JournalBuilder("n1")
    story.upgrade("n1")
    story.annotate("n1", REQUEST_ANNOTATION, "forget")
    story.apply(
        "n1",
        labelled(DRIVER_LABEL, None),
        annotated("sluice.dev/upgrade", None),
        annotated(REQUEST_ANNOTATION, ""),
    )
    assert messages(story.journal(), "I2") == []


@pytest.mark.parametrize(("started", "label"), [(True, None), (False, "other")])
def test_a_node_that_is_let_go_of_midway_or_with_another_driver_is_not(
    started: bool, label: str | None
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.annotate("n1", LEASE_ANNOTATION, None)
    story.apply("n1", record=msgspec.structs.replace(story.records["n1"], started=started))
    story.apply("n1", labelled(DRIVER_LABEL, label), annotated("sluice.dev/upgrade", None))
    assert len(messages(story.journal(), "I2")) == 1


def test_a_driver_that_came_with_the_machine_is_let_be() -> None:
    story = JournalBuilder("n1", "n2")
    for name in ("n1", "n2"):
        story.take_lease(name, operation=Operation.VALIDATE, cordon=False, label=OLD_LABEL)
        story.validate(name)
        story.op(name, "validator", "validate", op=1)
    story.finish("n1", evidence=story.evidence("n1", driver_pod_uid=""))
    story.finish("n2")
    for name in ("n1", "n2"):
        story.apply(name, labelled(DRIVER_LABEL, None), annotated("sluice.dev/upgrade", None))
    assert messages(story.journal(), "I2") == [
        f"n2: its driver label went from '{OLD_LABEL}' to '' without a lease"
    ]


@pytest.mark.parametrize(
    ("heard_by", "at", "problems"), [("n1", 0, 1), ("n2", 0, 0), ("n1", 50, 0)]
)
def test_what_is_left_to_count_on_from_is_what_the_agents_of_this_node_had_heard_by_then(
    heard_by: str, at: float, problems: int
) -> None:
    story = JournalBuilder("n1", "n2")
    story.take_lease("n1")
    story.take_lease("n2")
    story.advance(at)
    story.op(heard_by, "plugin", "quiesce", op=1)
    story.advance(-at)
    story.release_unchanged("n1")
    story.annotate("n1", RECORD_ANNOTATION, "garbled")
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    story.take_lease("n1", token=1)
    assert len(messages(story.journal(max_unavailable=2, failure_threshold=2), "I2")) == problems


def test_without_what_the_agents_wrote_a_lost_record_leaves_nothing_to_count_on_from() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1")
    story.annotate("n1", RECORD_ANNOTATION, "garbled")
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    story.take_lease("n1", token=1)
    assert messages(story.journal(entries=None), "I2") == []


def test_a_lease_of_others_that_we_leave_alone_is_not_changed_by_us() -> None:
    story = JournalBuilder("n1")
    lease = encode(story.lease("n1", 7, LeaseOwner.HUMAN)).decode()
    story.annotate("n1", LEASE_ANNOTATION, lease)
    story.mark_required("n1")
    story.mark_required("n1")
    assert messages(story.journal(), "I2") == []


def test_who_replaces_a_lease_by_one_of_an_older_token_does_two_things_wrong() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", token=5)
    older = msgspec.structs.replace(story.records["n1"], token=4)
    story.apply("n1", leased(story.lease("n1", 4)), record=older)
    assert messages(story.journal(), "I2") == [
        "n1: a lease started with token 4, although token 5 was already used",
        "n1: token 4 of upgrade replaced token 5, which was still held",
    ]


def test_another_service_of_ours_that_deletes_a_node_did_not_change_its_lease() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.delete("Node", "n1", by="sluice-discovery")
    assert messages(story.journal(), "I2") == []


def test_a_driver_that_came_with_the_machine_is_let_be_only_when_we_go() -> None:
    story = JournalBuilder("n1")
    story.mark_required("n1")
    stays = story.records["n1"]
    story.apply("n1", labelled(DRIVER_LABEL, None), record=stays)
    assert messages(story.journal(), "I2") == [
        f"n1: its driver label went from {OLD_LABEL!r} to '' without a lease"
    ]


@pytest.mark.parametrize(
    ("taken", "problems"),
    [
        ((RECORD_ANNOTATION, LEASE_ANNOTATION), 0),
        ((LEASE_ANNOTATION, RECORD_ANNOTATION), 0),
        ((RECORD_ANNOTATION,), 0),
        ((LEASE_ANNOTATION,), 1),
    ],
)
def test_in_flight_a_token_is_known_until_both_lease_and_record_are_gone(
    taken: tuple[str, ...], problems: int
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    for key in taken:
        story.annotate("n1", key, None)
    story.annotate("n1", REQUEST_ANNOTATION, "adopt")
    story.records.pop("n1")
    story.take_lease("n1", token=1)
    story.release_unchanged("n1")
    story.take_lease("n1", token=1)
    assert len(messages(story.journal(), "I2")) == problems + 1
