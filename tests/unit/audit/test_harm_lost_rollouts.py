"""I8: Rollouts that forget failures, and Rollouts that are lost."""

from typing import Any

import pytest

from libs.contracts.node import RECORD_ANNOTATION
from tests.unit.audit.builders import POOL, Change, JournalBuilder, messages, violations_of
from tests.unit.audit.harm_builders import (
    FLEET,
    fail_upgrade,
    halted_target,
    i8_violations,
    journal,
    upgrade_successfully,
)


def targets(**failed: list[str]) -> Change:
    def change(rollout: dict[str, Any]) -> None:
        known = {key: {"threshold": 2, "failed": uids} for key, uids in failed.items()}
        rollout["status"] = {"base": 10, "targets": known}

    return change


def test_a_rollout_must_not_forget_a_failure() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(targets(t2=["uid-n0", "uid-n1"]))
    write = builder.rollout(targets(t2=["uid-n1"]))
    assert violations_of(builder.journal()) == [("I8", "", write.revision)]
    assert messages(builder.journal()) == [
        f"the Rollout of pool {POOL} forgot that uid-n0 failed on target t2"
    ]


@pytest.mark.parametrize(
    ("proven", "failed", "problems"), [(True, 1, 0), (True, 2, 1), (False, 1, 1), (False, 0, 0)]
)
def test_a_rollout_must_not_drop_a_target_with_failures(
    proven: bool, failed: int, problems: int
) -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(targets(t2=[]))
    if proven:
        upgrade_successfully(builder, "n0")
        upgrade_successfully(builder, "n1")
    for name in ("n2", "n3")[:failed]:
        fail_upgrade(builder, name)
    builder.rollout(targets(t2=["uid-n2", "uid-n3"][:failed]))
    write = builder.rollout(targets(t3=[]))
    assert i8_violations(builder) == [write.revision] * problems


def test_a_dropped_target_begins_unproven() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(targets(t2=[]))
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.rollout(targets(t3=[]))
    for name in ("n2", "n3"):
        builder.take_lease(name)
    over = builder.take_lease("n4")
    assert i8_violations(builder) == [over.revision]


def test_after_a_lost_rollout_nodes_in_flight_prove_the_target_again() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(targets(t2=[]))
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.lease_and_start("n2")
    builder.take_lease("n3")
    builder.delete("Rollout", POOL)
    builder.rollout(targets(t2=[]))
    over = builder.take_lease("n4")
    builder.start("n3")
    for name in ("n2", "n3"):
        builder.pass_validation(name)
        builder.finish(name)
    builder.take_lease("n5")
    assert i8_violations(builder) == [over.revision]


@pytest.mark.parametrize(("late", "problems"), [(False, 0), (True, 1)])
def test_a_node_granted_before_the_loss_may_still_start(late: bool, problems: int) -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(targets(t2=[]))
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.take_lease("n2")
    builder.take_lease("n3")
    before = {"nodes": str(builder.revision)}
    builder.delete("Rollout", POOL)
    builder.rollout(targets(t2=[]))
    builder.take_lease("n4", seen=None if late else before)
    assert len(i8_violations(builder)) == problems


@pytest.mark.parametrize(
    ("lost", "record", "problems"),
    [(True, None, 0), (True, "garbled", 0), (True, "", 1), (False, None, 1)],
)
def test_after_a_lost_rollout_only_failures_shown_by_nodes_count(
    lost: bool, record: str | None, problems: int
) -> None:
    builder = halted_target()
    builder.rollout(targets(t2=["uid-n2", "uid-n3"]))
    if record != "":
        builder.annotate("n3", RECORD_ANNOTATION, record)
    if lost:
        builder.delete("Rollout", POOL)
    builder.rollout(targets(t2=["uid-n2"]))
    builder.advance(10)
    builder.take_lease("n5")
    assert len(violations_of(journal(builder, 2), faults=True)) == (problems if lost else 2)


@pytest.mark.parametrize(("lost", "problems"), [("all", 0), ("target", 1), ("", 1)])
def test_after_a_lost_rollout_the_threshold_follows_the_present_size(
    lost: str, problems: int
) -> None:
    builder = JournalBuilder("n0", "n1")
    builder.rollout(targets(t2=[]))
    builder.take_lease("n0")
    for name in ("n2", "n3"):
        builder.node(name)
    if lost == "all":
        builder.delete("Rollout", POOL)
    if lost == "target":
        builder.rollout(targets())
    if lost:
        builder.rollout(targets(t2=[]))
    builder.take_lease("n1")
    assert len(i8_violations(builder, "50%")) == problems


def test_failures_outlive_a_deleted_rollout() -> None:
    builder = halted_target()
    builder.rollout(targets(t2=["uid-n2", "uid-n3"]))
    builder.delete("Rollout", POOL)
    builder.rollout(targets(t2=["uid-n2", "uid-n3"]))
    start = builder.start("n4")
    assert i8_violations(builder) == [start.revision]
