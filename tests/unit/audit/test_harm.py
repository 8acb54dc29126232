"""I8: who was granted or started beyond what a target may harm."""

from typing import Any

import msgspec
import pytest

from libs.audit import PoolFacts, judge
from libs.contracts.node import DRIVER_LABEL, MANAGER, STATE_LABEL, Operation
from tests.unit.audit.builders import (
    LABEL,
    OLD_LABEL,
    POOL,
    TARGET,
    JournalBuilder,
    labelled,
    messages,
    state,
    violations_of,
)
from tests.unit.audit.harm_builders import FLEET, halted, harm, journal, of_i8, prove


@pytest.mark.parametrize(
    ("threshold", "allowed"), [(0, 1), (1, 1), (2, 2), ("1%", 1), ("5%", 1), ("21%", 3), (10, 10)]
)
def test_while_a_target_proves_itself_so_many_are_in_flight(
    threshold: int | str, allowed: int
) -> None:
    story = JournalBuilder(*FLEET)
    leases = [story.take_lease(name).revision for name in FLEET]
    assert of_i8(story, threshold) == leases[allowed:]


def test_failures_count_like_nodes_in_flight_and_a_node_only_once() -> None:
    story = JournalBuilder(*FLEET)
    harm(story, "n0")
    story.take_lease("n0")
    story.take_lease("n1")
    over = story.take_lease("n2")
    assert of_i8(story) == [over.revision]
    why = "which is unproven: 2 nodes were in flight or had failed already"
    assert messages(journal(story), "I8") == [
        f"n2 was granted for target {TARGET} of pool {POOL}, {why}"
    ]


def test_once_it_is_proven_the_budget_alone_counts() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    for name in FLEET[2:]:
        story.take_lease(name)
        story.start(name)
    assert of_i8(story) == []


def test_a_failure_that_was_healed_proves_nothing() -> None:
    story = JournalBuilder(*FLEET)
    harm(story, "n0")
    prove(story, "n0")
    prove(story, "n1")
    story.take_lease("n2")
    over = story.take_lease("n3")
    assert of_i8(story) == [over.revision]


def test_a_release_before_the_start_is_no_harm_and_gives_its_place_back() -> None:
    story = JournalBuilder(*FLEET)
    for name in FLEET:
        story.take_lease(name)
        story.release_unchanged(name)
    for name in FLEET:
        story.take_lease(name)
        story.fail(name, cause="eviction")
    assert of_i8(story, 1) == []


def test_in_a_halt_nobody_is_granted_and_nobody_started() -> None:
    story = halted()
    lease = story.take_lease("n5")
    start = story.start("n4")
    assert of_i8(story) == [lease.revision, start.revision]
    assert messages(journal(story), "I8") == [
        f"n5 was granted for target {TARGET} of pool {POOL}, which is halted: 2 nodes failed on it",
        f"n4 was started on target {TARGET} of pool {POOL}, which is halted: 2 nodes failed on it",
    ]


@pytest.mark.parametrize("at_once", [False, True])
def test_nor_is_anybody_restarted_whose_label_stays(at_once: bool) -> None:
    story = halted()
    lease = story.take_lease("n2", operation=Operation.SAME_LABEL, started=at_once)
    expected = [lease.revision]
    if at_once:
        expected.append(lease.revision)
    else:
        expected.append(story.start("n2", restart=True).revision)
    story.validate("n2")
    assert of_i8(story) == expected


def test_not_even_a_retry_or_a_node_that_joins() -> None:
    story = halted()
    retry = story.take_lease("n2")
    story.node("n10", driver="")
    joined = story.take_lease("n10", operation=Operation.BRING_UP, cordon=False)
    assert of_i8(story) == [retry.revision, joined.revision]


def test_a_start_that_is_not_called_one_is_one() -> None:
    story = halted()
    start = story.apply("n4", labelled(DRIVER_LABEL, LABEL), record=story.records["n4"])
    assert of_i8(story) == [start.revision]


def test_who_was_started_before_finishes() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    story.take_lease("n4")
    story.start("n4")
    harm(story, "n2")
    harm(story, "n3")
    story.advance(100)
    story.label("n4", DRIVER_LABEL, None)
    story.apply("n4", labelled(DRIVER_LABEL, LABEL), record=story.records["n4"])
    story.validate("n4")
    story.op("n4", "validator", "validate", op=1)
    story.finish("n4")
    assert of_i8(story) == []


def test_what_was_decided_in_the_same_round_is_nobodys_fault() -> None:
    story = halted()
    story.advance(-10)
    story.start("n4")
    assert of_i8(story) == []


def test_nor_what_was_decided_before_as_it_says_itself() -> None:
    story = halted()
    before = story.revisions[-2].revision
    seen = {"nodes": str(before)}
    story.records["n4"] = msgspec.structs.replace(story.records["n4"], seen=seen)
    story.start("n4")
    assert of_i8(story) == []
    story.advance(90)
    late = story.take_lease("n5", seen=seen)
    assert late.revision in of_i8_alone(story)


def of_i8_alone(story: JournalBuilder) -> list[int]:
    return [
        revision for invariant, _, revision in violations_of(journal(story)) if invariant == "I8"
    ]


def test_a_restart_of_what_a_node_runs_is_no_start() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    harm(story, "n2")
    harm(story, "n3")
    story.advance(100)
    story.label("n0", DRIVER_LABEL, None)
    story.take_lease("n0", operation=Operation.SAME_LABEL)
    story.start("n0")
    assert of_i8(story) == []
    story.label("n3", DRIVER_LABEL, None)
    lease = story.take_lease("n3", operation=Operation.SAME_LABEL)
    start = story.start("n3")
    assert of_i8(story) == [lease.revision, start.revision]


def test_a_validation_of_a_failed_node_is_outside_all_counts() -> None:
    story = halted()
    story.take_lease("n2", operation=Operation.VALIDATE, cordon=False)
    story.validate("n2")
    story.op("n2", "validator", "validate", op=1)
    story.finish("n2")
    story.take_lease("n3", operation=Operation.REMOVE, target="", label="")
    assert of_i8(story) == []


@pytest.mark.parametrize("known_as_outside", [True, False])
def test_who_failed_while_it_rested_did_not_fail_on_a_target(known_as_outside: bool) -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        prove(story, name)
    harm(story, "n3")
    story.advance(100)
    story.take_lease("n0", operation=Operation.VALIDATE, cordon=False)
    story.fail("n0")
    if known_as_outside:
        story.records["n0"] = msgspec.structs.replace(story.records["n0"], outside=True)
    harm(story, "n0")
    story.advance(100)
    lease = story.take_lease("n4")
    start = story.start("n4")
    assert of_i8(story) == ([] if known_as_outside else [lease.revision, start.revision])


def test_a_person_accepts_failures_and_the_halt_ends() -> None:
    story = halted()
    story.release(1)
    story.start("n4")
    over = story.take_lease("n5")
    assert of_i8(story) == [over.revision]


def test_the_proof_begins_anew_with_another_number() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    story.release(1)
    story.advance(1)
    for name in ("n2", "n3", "n4"):
        story.take_lease(name)
    over = story.take_lease("n5")
    assert of_i8(story) == [over.revision]


def test_only_what_is_proven_from_then_on_counts_for_it() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    story.release(1)
    story.advance(1)
    for name in ("n0", "n1"):
        story.take_lease(name)
        story.release_unchanged(name)
        story.label(name, STATE_LABEL, "drain-required")
        story.apply(name, state("upgrade-done"), record=story.records[name])
    for name in ("n2", "n3", "n4"):
        story.take_lease(name)
    over = story.take_lease("n5")
    assert of_i8(story) == [over.revision]


def test_what_was_accepted_for_another_target_is_not_for_this_one() -> None:
    story = halted()
    story.release(5, target="t9")
    start = story.start("n4")
    assert of_i8(story) == [start.revision]


def test_a_number_that_is_lowered_holds_after_a_while() -> None:
    story = halted()
    story.release(2)
    story.advance(1)
    story.release(0)
    story.advance(10)
    story.start("n4")
    assert of_i8(story) == []
    story.advance(91)
    late = story.take_lease("n5")
    assert of_i8(story) == [late.revision]


def test_where_there_is_no_rollout_the_facts_say_what_is_accepted() -> None:
    story = halted()
    at = story.time
    story.advance(10)
    start = story.start("n4")
    members = journal(story).pools[0]
    accepted = msgspec.structs.replace(members, since=at, accepted={TARGET: 1})
    later = msgspec.structs.replace(accepted, since=at + 11)
    assert of_i8(story, pools=(members, accepted)) == []
    assert of_i8(story, pools=(members, later)) == [start.revision]
    assert of_i8(story, pools=(members,)) == [start.revision]


def test_failures_stick_when_nodes_are_deleted_and_policies_edited() -> None:
    story = JournalBuilder(*FLEET)
    harm(story, "n0")
    harm(story, "n1")
    story.delete("Node", "n0")
    story.delete("Node", "n1")
    story.advance(100)
    prove(story, "n2", "t3", "label-3")
    prove(story, "n3", "t3", "label-3")
    over = story.take_lease("n4")
    assert of_i8(story) == [over.revision]


def test_a_place_in_flight_returns_with_its_node() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.take_lease("n1")
    story.delete("Node", "n0")
    story.node("n0", uid="uid-again")
    story.take_lease("n2")
    over = story.take_lease("n3")
    assert of_i8(story) == [over.revision]


def test_an_operation_that_takes_another_target_midway_is_counted_there() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.take_lease("n1")
    story.take_lease("n2", target="t3", label="label-3")
    story.take_lease("n3", target="t3", label="label-3")
    record = msgspec.structs.replace(story.records["n1"], target="t3", label="label-3")
    over = story.apply("n1", record=record)
    story.take_lease("n4")
    assert of_i8(story) == [over.revision]


@pytest.mark.parametrize(("base", "allowed"), [(5, 1), (10, 2), (0, 2)])
def test_a_base_that_is_given_bounds_it(base: int, allowed: int) -> None:
    story = JournalBuilder(*FLEET)
    leases = [story.take_lease(name).revision for name in FLEET]
    facts = msgspec.structs.replace(journal(story, "20%").pools[0], base=base or None)
    later = msgspec.structs.replace(facts, max_unavailable=10)
    assert of_i8(story, pools=(later,)) == leases[allowed:]


def test_the_threshold_is_of_the_base_of_the_rollout() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(lambda rollout: rollout.update(status={"base": 5}))
    story.take_lease("n0")
    over = story.take_lease("n1")
    assert of_i8(story, "20%") == [over.revision]


def test_the_threshold_is_of_the_base_when_the_target_began() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(lambda rollout: rollout.update(status={"base": 10}))
    for name in FLEET[4:]:
        story.delete("Node", name)
    story.take_lease("n0")
    story.take_lease("n1")
    over = story.take_lease("n2")
    assert of_i8(story, "20%") == [over.revision]


def test_a_rollout_cannot_have_counted_more_nodes_than_there_were() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(lambda rollout: rollout.update(status={"base": 1000}))
    leases = [story.take_lease(name).revision for name in FLEET]
    assert of_i8(story, "20%") == leases[2:]


def test_how_a_target_stood_at_the_start_is_in_the_rollout() -> None:
    story = JournalBuilder(*FLEET)
    harm(story, "n0")
    story.take_lease("n1")

    def change(rollout: dict[str, Any]) -> None:
        known = {"threshold": 3, "failed": ["uid-n0"], "validated": ["uid-n8"]}
        rollout["status"] = {"base": 10, "targets": {TARGET: known}}

    story.rollout(change)
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    story.advance(100)
    story.start("n1")
    story.take_lease("n2")
    over = story.take_lease("n3")
    later = journal(story, 100, revisions=tuple(story.revisions[begun:]), start=start)
    assert violations_of(later) == [("I8", "n3", over.revision)]


def test_or_follows_from_who_is_in_flight_there() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    story.take_lease("n1")
    over = story.take_lease("n2")
    later = journal(story, revisions=tuple(story.revisions[begun:]), start=start)
    members = msgspec.structs.replace(later.pools[0], members=frozenset(f"uid-{n}" for n in FLEET))
    later = msgspec.structs.replace(later, pools=(members,))
    assert violations_of(later) == [("I8", "n2", over.revision)]
    assert judge(later, faults=True).not_judged == {
        "I9": "events",
        "I10": "a run without injected faults",
        "I11": "events",
    }


def test_a_target_whose_threshold_nobody_knows_is_not_judged() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    other = PoolFacts(key="nvidiadriver-x", members=frozenset())
    verdict = judge(journal(story, pools=(other,)))
    assert verdict.violations == ()
    assert verdict.not_judged["I8"] == (
        f"the failureThreshold of pool {POOL} when target {TARGET} began"
    )


def test_labels_are_those_of_the_journal() -> None:
    """What the stories take for granted."""
    story = JournalBuilder("n0")
    assert story.label_of("n0") == OLD_LABEL
    lease = story.take_lease("n0")
    assert lease.manager == MANAGER
    assert story.start("n0").changed['metadata.labels["sluice.dev/driver"]'] == (OLD_LABEL, LABEL)
