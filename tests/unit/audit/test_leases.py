"""I2 on Nodes: one lease at a time, and no change without one."""

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


def test_a_reused_token_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1")
    write = builder.take_lease("n1", token=1)
    assert violations_of(builder.journal()) == [("I2", "n1", write.revision)]
    assert messages(builder.journal()) == [
        "n1: a lease started with token 1, although token 1 was already used"
    ]


def test_tokens_of_other_owners_count() -> None:
    builder = JournalBuilder("n1")
    lease = encode(builder.lease("n1", 7, LeaseOwner.HUMAN)).decode()
    builder.annotate("n1", LEASE_ANNOTATION, lease)
    builder.annotate("n1", LEASE_ANNOTATION, None)
    builder.take_lease("n1")
    assert messages(builder.journal(), "I2") == [
        "n1: a lease started with token 1, although token 7 was already used"
    ]


@pytest.mark.parametrize(("heard", "problems"), [(False, 0), (True, 1)])
def test_a_token_without_any_trace_may_be_reused(heard: bool, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    if heard:
        builder.op("n1", "plugin", "quiesce", op=1)
    builder.release_unchanged("n1")
    builder.annotate("n1", RECORD_ANNOTATION, "garbled")
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    builder.take_lease("n1", token=1)
    assert len(messages(builder.journal(), "I2")) == problems


def test_replacing_a_lease_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.take_lease("n1")
    assert messages(builder.journal(), "I2") == [
        "n1: token 2 of upgrade replaced token 1, which was still held"
    ]


@pytest.mark.parametrize("owner", [LeaseOwner.HUMAN, LeaseOwner.REPAIR, LeaseOwner.MIG])
def test_changing_the_lease_of_another_owner_is_a_violation(owner: LeaseOwner) -> None:
    builder = JournalBuilder("n1")
    builder.annotate("n1", LEASE_ANNOTATION, encode(builder.lease("n1", 1, owner)).decode())
    builder.take_lease("n1", token=2)
    assert messages(builder.journal(), "I2") == [
        f"n1: the lease of {owner.value} with token 1 was changed by us"
    ]


def test_a_person_may_end_a_lease() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.annotate("n1", LEASE_ANNOTATION, None)
    builder.take_lease("n1")
    assert violations_of(builder.journal()) == []


def test_our_other_services_must_not_change_an_upgrade_lease() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.label("n1", "nvidia.com/gpu.count", "8", by="sluice-discovery")
    assert violations_of(builder.journal()) == []
    builder.annotate("n1", LEASE_ANNOTATION, None, by="sluice-driver")
    assert messages(builder.journal(), "I2") == [
        "n1: sluice-driver changed the lease of an upgrade"
    ]


def test_a_lease_of_an_earlier_node_of_the_same_name_is_void() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.delete("Node", "n1")
    builder.node("n1", uid="uid-other")
    void = NodeLease(node_uid="uid-n1", owner=LeaseOwner.HUMAN, token=9, since=0.0)
    builder.annotate("n1", LEASE_ANNOTATION, encode(void).decode())
    builder.take_lease("n1", token=1)
    assert violations_of(builder.journal()) == []


def test_a_record_of_an_earlier_node_of_the_same_name_is_void() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.fail("n1")
    record = encode(builder.records["n1"]).decode()
    builder.delete("Node", "n1")
    builder.node("n1", uid="uid-other")
    builder.annotate("n1", RECORD_ANNOTATION, record)
    lease = builder.take_lease("n1", token=1)
    builder.revisions = builder.revisions[-3:]
    assert violations_of(builder.journal(max_unavailable=0)) == [("I1", "n1", lease.revision)]


def test_a_lease_rewritten_with_its_token_is_the_same() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.advance(60)
    builder.apply("n1", leased(builder.lease("n1", 1)), record=builder.records["n1"])
    assert violations_of(builder.journal()) == []


def test_a_lease_needs_a_record_with_its_token() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.take_lease("n1")
    builder.apply("n1", leased(builder.lease("n1", 1)), record=builder.records["n1"])
    builder.apply("n2", leased(builder.lease("n2", 1)))
    assert messages(builder.journal(max_unavailable=2), "I2") == [
        "n2: it has a lease with token 1 but no record"
    ]
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1")
    builder.apply(
        "n1", leased(builder.lease("n1", 2)), cordoned(True), record=builder.records["n1"]
    )
    assert messages(builder.journal(), "I2") == [
        "n1: its record has token 1, but its lease has token 2"
    ]


def test_changing_driver_label_or_cordon_without_a_lease_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.apply("n1", labelled(DRIVER_LABEL, "other"), cordoned(True))
    assert messages(builder.journal(), "I2") == [
        "n1: it was cordoned without a lease",
        f"n1: its driver label went from '{OLD_LABEL}' to 'other' without a lease",
    ]


def test_dropping_the_label_without_a_record_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.apply("n1", labelled(DRIVER_LABEL, None))
    assert len(messages(builder.journal(), "I2")) == 1


def test_a_forget_request_drops_the_label_without_a_lease() -> None:
    builder = JournalBuilder("n1")
    builder.upgrade("n1")
    builder.annotate("n1", REQUEST_ANNOTATION, "forget")
    builder.apply(
        "n1",
        labelled(DRIVER_LABEL, None),
        annotated("sluice.dev/upgrade", None),
        annotated(REQUEST_ANNOTATION, ""),
    )
    assert messages(builder.journal(), "I2") == []


@pytest.mark.parametrize(("started", "label"), [(True, None), (False, "other")])
def test_dropping_the_label_of_a_changed_node_is_a_violation(
    started: bool, label: str | None
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.annotate("n1", LEASE_ANNOTATION, None)
    builder.apply("n1", record=msgspec.structs.replace(builder.records["n1"], started=started))
    builder.apply("n1", labelled(DRIVER_LABEL, label), annotated("sluice.dev/upgrade", None))
    assert len(messages(builder.journal(), "I2")) == 1


def test_the_label_of_a_preinstalled_driver_may_be_dropped() -> None:
    builder = JournalBuilder("n1", "n2")
    for name in ("n1", "n2"):
        builder.take_lease(name, operation=Operation.VALIDATE, cordon=False, label=OLD_LABEL)
        builder.pass_validation(name)
    builder.finish("n1", evidence=builder.evidence("n1", driver_pod_uid=""))
    builder.finish("n2")
    for name in ("n1", "n2"):
        builder.apply(name, labelled(DRIVER_LABEL, None), annotated("sluice.dev/upgrade", None))
    assert messages(builder.journal(), "I2") == [
        f"n2: its driver label went from '{OLD_LABEL}' to '' without a lease"
    ]


@pytest.mark.parametrize(
    ("heard_by", "at", "problems"), [("n1", 0, 1), ("n2", 0, 0), ("n1", 50, 0)]
)
def test_after_a_lost_record_tokens_continue_from_the_journals_of_the_agents(
    heard_by: str, at: float, problems: int
) -> None:
    builder = JournalBuilder("n1", "n2")
    builder.take_lease("n1")
    builder.take_lease("n2")
    builder.advance(at)
    builder.op(heard_by, "plugin", "quiesce", op=1)
    builder.advance(-at)
    builder.release_unchanged("n1")
    builder.annotate("n1", RECORD_ANNOTATION, "garbled")
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    builder.take_lease("n1", token=1)
    assert len(messages(builder.journal(max_unavailable=2, failure_threshold=2), "I2")) == problems


def test_after_a_lost_record_without_entries_tokens_start_over() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1")
    builder.annotate("n1", RECORD_ANNOTATION, "garbled")
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    builder.take_lease("n1", token=1)
    assert messages(builder.journal(entries=None), "I2") == []


def test_leaving_the_lease_of_another_owner_is_no_violation() -> None:
    builder = JournalBuilder("n1")
    lease = encode(builder.lease("n1", 7, LeaseOwner.HUMAN)).decode()
    builder.annotate("n1", LEASE_ANNOTATION, lease)
    builder.mark_required("n1")
    builder.mark_required("n1")
    assert messages(builder.journal(), "I2") == []


def test_replacing_a_lease_by_an_older_token_is_two_violations() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", token=5)
    older = msgspec.structs.replace(builder.records["n1"], token=4)
    builder.apply("n1", leased(builder.lease("n1", 4)), record=older)
    assert messages(builder.journal(), "I2") == [
        "n1: a lease started with token 4, although token 5 was already used",
        "n1: token 4 of upgrade replaced token 5, which was still held",
    ]


def test_deleting_a_node_does_not_change_its_lease() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.delete("Node", "n1", by="sluice-discovery")
    assert messages(builder.journal(), "I2") == []


def test_the_label_of_a_preinstalled_driver_is_dropped_only_with_the_record() -> None:
    builder = JournalBuilder("n1")
    builder.mark_required("n1")
    stays = builder.records["n1"]
    builder.apply("n1", labelled(DRIVER_LABEL, None), record=stays)
    assert messages(builder.journal(), "I2") == [
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
def test_a_token_is_known_until_lease_and_record_are_gone(
    taken: tuple[str, ...], problems: int
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    for key in taken:
        builder.annotate("n1", key, None)
    builder.annotate("n1", REQUEST_ANNOTATION, "adopt")
    builder.records.pop("n1")
    builder.take_lease("n1", token=1)
    builder.release_unchanged("n1")
    builder.take_lease("n1", token=1)
    assert len(messages(builder.journal(), "I2")) == problems + 1
