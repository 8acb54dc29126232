"""I8: Rollouts that forget what a target did, and Rollouts that are lost."""

from typing import Any

import pytest

from libs.contracts.node import RECORD_ANNOTATION
from tests.unit.audit.builders import POOL, Change, JournalBuilder, messages, violations_of
from tests.unit.audit.harm_builders import FLEET, halted, harm, journal, of_i8, prove


def targets(**failed: list[str]) -> Change:
    def change(rollout: dict[str, Any]) -> None:
        known = {key: {"threshold": 2, "failed": uids} for key, uids in failed.items()}
        rollout["status"] = {"base": 10, "targets": known}

    return change


def test_a_rollout_that_forgets_a_failure() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(targets(t2=["uid-n0", "uid-n1"]))
    write = story.rollout(targets(t2=["uid-n1"]))
    assert violations_of(story.journal()) == [("I8", "", write.revision)]
    assert messages(story.journal()) == [
        f"the Rollout of pool {POOL} forgot that uid-n0 failed on target t2"
    ]


@pytest.mark.parametrize(
    ("proven", "failed", "problems"), [(True, 1, 0), (True, 2, 1), (False, 1, 1), (False, 0, 0)]
)
def test_a_rollout_that_drops_a_target(proven: bool, failed: int, problems: int) -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(targets(t2=[]))
    if proven:
        prove(story, "n0")
        prove(story, "n1")
    for name in ("n2", "n3")[:failed]:
        harm(story, name)
    story.rollout(targets(t2=["uid-n2", "uid-n3"][:failed]))
    write = story.rollout(targets(t3=[]))
    assert of_i8(story) == [write.revision] * problems


def test_a_target_that_was_proven_complete_and_forgotten_begins_anew() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(targets(t2=[]))
    prove(story, "n0")
    prove(story, "n1")
    story.rollout(targets(t3=[]))
    for name in ("n2", "n3"):
        story.take_lease(name)
    over = story.take_lease("n4")
    assert of_i8(story) == [over.revision]


def test_when_its_rollout_is_lost_who_is_in_flight_proves_it_anew() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(targets(t2=[]))
    prove(story, "n0")
    prove(story, "n1")
    story.take_lease("n2")
    story.start("n2")
    story.take_lease("n3")
    story.delete("Rollout", POOL)
    story.rollout(targets(t2=[]))
    over = story.take_lease("n4")
    story.start("n3")
    for name in ("n2", "n3"):
        story.validate(name)
        story.op(name, "validator", "validate", op=1)
        story.finish(name)
    story.take_lease("n5")
    assert of_i8(story) == [over.revision]


@pytest.mark.parametrize(("late", "problems"), [(False, 0), (True, 1)])
def test_who_was_granted_before_it_was_lost_may_still_begin(late: bool, problems: int) -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(targets(t2=[]))
    prove(story, "n0")
    prove(story, "n1")
    story.take_lease("n2")
    story.take_lease("n3")
    before = {"nodes": str(story.revision)}
    story.delete("Rollout", POOL)
    story.rollout(targets(t2=[]))
    story.take_lease("n4", seen=None if late else before)
    assert len(of_i8(story)) == problems


@pytest.mark.parametrize(
    ("lost", "record", "problems"),
    [(True, None, 0), (True, "garbled", 0), (True, "", 1), (False, None, 1)],
)
def test_when_its_rollout_is_lost_of_failures_only_nodes_can_tell(
    lost: bool, record: str | None, problems: int
) -> None:
    story = halted()
    story.rollout(targets(t2=["uid-n2", "uid-n3"]))
    if record != "":
        story.annotate("n3", RECORD_ANNOTATION, record)
    if lost:
        story.delete("Rollout", POOL)
    story.rollout(targets(t2=["uid-n2"]))
    story.advance(10)
    story.take_lease("n5")
    assert len(violations_of(journal(story, 2), faults=True)) == (problems if lost else 2)


@pytest.mark.parametrize(("lost", "problems"), [("all", 0), ("target", 1), ("", 1)])
def test_when_it_was_lost_its_share_is_of_the_nodes_that_there_are_then(
    lost: str, problems: int
) -> None:
    story = JournalBuilder("n0", "n1")
    story.rollout(targets(t2=[]))
    story.take_lease("n0")
    for name in ("n2", "n3"):
        story.node(name)
    if lost == "all":
        story.delete("Rollout", POOL)
    if lost == "target":
        story.rollout(targets())
    if lost:
        story.rollout(targets(t2=[]))
    story.take_lease("n1")
    assert len(of_i8(story, "50%")) == problems


def test_a_rollout_that_somebody_deletes_takes_no_failures_along() -> None:
    story = halted()
    story.rollout(targets(t2=["uid-n2", "uid-n3"]))
    story.delete("Rollout", POOL)
    story.rollout(targets(t2=["uid-n2", "uid-n3"]))
    start = story.start("n4")
    assert of_i8(story) == [start.revision]
