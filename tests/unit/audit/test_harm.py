"""I8: grants and starts beyond the failure allowance of a target."""

from typing import Any

import msgspec
import pytest

from libs.audit import PoolFacts, judge
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, Operation
from tests.unit.audit.builders import (
    LABEL,
    POOL,
    TARGET,
    JournalBuilder,
    labelled,
    messages,
    state,
    violations_of,
)
from tests.unit.audit.harm_builders import (
    FLEET,
    fail_upgrade,
    halted_target,
    i8_violations,
    journal,
    upgrade_successfully,
)


@pytest.mark.parametrize(
    ("threshold", "allowed"), [(0, 1), (1, 1), (2, 2), ("1%", 1), ("5%", 1), ("21%", 3), (10, 10)]
)
def test_an_unproven_target_has_at_most_the_threshold_in_flight(
    threshold: int | str, allowed: int
) -> None:
    builder = JournalBuilder(*FLEET)
    leases = [builder.take_lease(name).revision for name in FLEET]
    assert i8_violations(builder, threshold) == leases[allowed:]


def test_failures_count_like_nodes_in_flight_and_once_per_node() -> None:
    builder = JournalBuilder(*FLEET)
    fail_upgrade(builder, "n0")
    builder.take_lease("n0")
    builder.take_lease("n1")
    over = builder.take_lease("n2")
    assert i8_violations(builder) == [over.revision]
    why = "which is unproven: 2 nodes were in flight or had failed already"
    assert messages(journal(builder), "I8") == [
        f"n2 was granted for target {TARGET} of pool {POOL}, {why}"
    ]


def test_a_proven_target_is_bounded_by_the_budget_alone() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    for name in FLEET[2:]:
        builder.lease_and_start(name)
    assert i8_violations(builder) == []


def test_a_successful_retry_proves_nothing() -> None:
    builder = JournalBuilder(*FLEET)
    fail_upgrade(builder, "n0")
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.take_lease("n2")
    over = builder.take_lease("n3")
    assert i8_violations(builder) == [over.revision]


def test_a_release_before_the_start_frees_its_place() -> None:
    builder = JournalBuilder(*FLEET)
    for name in FLEET:
        builder.take_lease(name)
        builder.release_unchanged(name)
    for name in FLEET:
        builder.take_lease(name)
        builder.fail(name, cause="eviction")
    assert i8_violations(builder, 1) == []


def test_a_halted_target_grants_and_starts_no_node() -> None:
    builder = halted_target()
    lease = builder.take_lease("n5")
    start = builder.start("n4")
    assert i8_violations(builder) == [lease.revision, start.revision]
    assert messages(journal(builder), "I8") == [
        f"n5 was granted for target {TARGET} of pool {POOL}, which is halted: 2 nodes failed on it",
        f"n4 was started on target {TARGET} of pool {POOL}, which is halted: 2 nodes failed on it",
    ]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_halted_target_restarts_no_unproven_node(at_once: bool) -> None:
    builder = halted_target()
    lease = builder.take_lease("n2", operation=Operation.SAME_LABEL, started=at_once)
    expected = [lease.revision]
    if at_once:
        expected.append(lease.revision)
    else:
        expected.append(builder.start("n2", restart=True).revision)
    builder.validate("n2")
    assert i8_violations(builder) == expected


def test_a_halted_target_takes_no_retry_and_no_new_node() -> None:
    builder = halted_target()
    retry = builder.take_lease("n2")
    builder.node("n10", driver="")
    joined = builder.take_lease("n10", operation=Operation.BRING_UP, cordon=False)
    assert i8_violations(builder) == [retry.revision, joined.revision]


def test_a_moved_label_is_a_start_even_without_the_started_flag() -> None:
    builder = halted_target()
    start = builder.apply("n4", labelled(DRIVER_LABEL, LABEL), record=builder.records["n4"])
    assert i8_violations(builder) == [start.revision]


def test_a_node_started_before_the_halt_finishes() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.lease_and_start("n4")
    fail_upgrade(builder, "n2")
    fail_upgrade(builder, "n3")
    builder.advance(100)
    builder.label("n4", DRIVER_LABEL, None)
    builder.apply("n4", labelled(DRIVER_LABEL, LABEL), record=builder.records["n4"])
    builder.pass_validation("n4")
    builder.finish("n4")
    assert i8_violations(builder) == []


def test_a_decision_of_the_same_round_is_no_violation() -> None:
    builder = halted_target()
    builder.advance(-10)
    builder.start("n4")
    assert i8_violations(builder) == []


def test_a_decision_on_earlier_revisions_is_no_violation() -> None:
    builder = halted_target()
    before = builder.revisions[-2].revision
    seen = {"nodes": str(before)}
    builder.records["n4"] = msgspec.structs.replace(builder.records["n4"], seen=seen)
    builder.start("n4")
    assert i8_violations(builder) == []
    builder.advance(90)
    late = builder.take_lease("n5", seen=seen)
    assert late.revision in of_i8_alone(builder)


def of_i8_alone(builder: JournalBuilder) -> list[int]:
    return [
        revision for invariant, _, revision in violations_of(journal(builder)) if invariant == "I8"
    ]


def test_a_restart_of_a_proven_driver_is_no_start() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    fail_upgrade(builder, "n2")
    fail_upgrade(builder, "n3")
    builder.advance(100)
    builder.label("n0", DRIVER_LABEL, None)
    builder.lease_and_start("n0", operation=Operation.SAME_LABEL)
    assert i8_violations(builder) == []
    builder.label("n3", DRIVER_LABEL, None)
    lease = builder.take_lease("n3", operation=Operation.SAME_LABEL)
    start = builder.start("n3")
    assert i8_violations(builder) == [lease.revision, start.revision]


def test_a_validation_of_a_failed_node_is_not_counted() -> None:
    builder = halted_target()
    builder.take_lease("n2", operation=Operation.VALIDATE, cordon=False)
    builder.pass_validation("n2")
    builder.finish("n2")
    builder.take_lease("n3", operation=Operation.REMOVE, target="", label="")
    assert i8_violations(builder) == []


@pytest.mark.parametrize("known_as_outside", [True, False])
def test_a_failure_at_rest_is_of_no_target(known_as_outside: bool) -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        upgrade_successfully(builder, name)
    fail_upgrade(builder, "n3")
    builder.advance(100)
    builder.take_lease("n0", operation=Operation.VALIDATE, cordon=False)
    builder.fail("n0")
    if known_as_outside:
        builder.records["n0"] = msgspec.structs.replace(builder.records["n0"], outside=True)
    fail_upgrade(builder, "n0")
    builder.advance(100)
    lease = builder.take_lease("n4")
    start = builder.start("n4")
    assert i8_violations(builder) == ([] if known_as_outside else [lease.revision, start.revision])


def test_accepted_failures_end_the_halt() -> None:
    builder = halted_target()
    builder.release(1)
    builder.start("n4")
    over = builder.take_lease("n5")
    assert i8_violations(builder) == [over.revision]


def test_accepting_another_number_restarts_the_proof() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.release(1)
    builder.advance(1)
    for name in ("n2", "n3", "n4"):
        builder.take_lease(name)
    over = builder.take_lease("n5")
    assert i8_violations(builder) == [over.revision]


def test_only_later_validations_count_for_the_restarted_proof() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.release(1)
    builder.advance(1)
    for name in ("n0", "n1"):
        builder.take_lease(name)
        builder.release_unchanged(name)
        builder.label(name, STATE_LABEL, "drain-required")
        builder.apply(name, state("upgrade-done"), record=builder.records[name])
    for name in ("n2", "n3", "n4"):
        builder.take_lease(name)
    over = builder.take_lease("n5")
    assert i8_violations(builder) == [over.revision]


def test_accepted_failures_are_of_one_target() -> None:
    builder = halted_target()
    builder.release(5, target="t9")
    start = builder.start("n4")
    assert i8_violations(builder) == [start.revision]


def test_a_lowered_number_holds_once_the_former_is_stale() -> None:
    builder = halted_target()
    builder.release(2)
    builder.advance(1)
    builder.release(0)
    builder.advance(10)
    builder.start("n4")
    assert i8_violations(builder) == []
    builder.advance(91)
    late = builder.take_lease("n5")
    assert i8_violations(builder) == [late.revision]


def test_without_a_rollout_the_facts_name_accepted_failures() -> None:
    builder = halted_target()
    at = builder.time
    builder.advance(10)
    start = builder.start("n4")
    members = journal(builder).pools[0]
    accepted = msgspec.structs.replace(members, since=at, accepted={TARGET: 1})
    later = msgspec.structs.replace(accepted, since=at + 11)
    assert i8_violations(builder, pools=(members, accepted)) == []
    assert i8_violations(builder, pools=(members, later)) == [start.revision]
    assert i8_violations(builder, pools=(members,)) == [start.revision]


def test_failures_outlive_nodes_and_policy_edits() -> None:
    builder = JournalBuilder(*FLEET)
    fail_upgrade(builder, "n0")
    fail_upgrade(builder, "n1")
    builder.delete("Node", "n0")
    builder.delete("Node", "n1")
    builder.advance(100)
    upgrade_successfully(builder, "n2", "t3", "label-3")
    upgrade_successfully(builder, "n3", "t3", "label-3")
    over = builder.take_lease("n4")
    assert i8_violations(builder) == [over.revision]


def test_a_deleted_node_in_flight_frees_its_place() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.take_lease("n1")
    builder.delete("Node", "n0")
    builder.node("n0", uid="uid-again")
    builder.take_lease("n2")
    over = builder.take_lease("n3")
    assert i8_violations(builder) == [over.revision]


def test_a_node_that_changes_its_target_is_counted_there() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.take_lease("n1")
    builder.take_lease("n2", target="t3", label="label-3")
    builder.take_lease("n3", target="t3", label="label-3")
    record = msgspec.structs.replace(builder.records["n1"], target="t3", label="label-3")
    over = builder.apply("n1", record=record)
    builder.take_lease("n4")
    assert i8_violations(builder) == [over.revision]


@pytest.mark.parametrize(("base", "allowed"), [(5, 1), (10, 2), (0, 2)])
def test_a_given_base_determines_the_threshold(base: int, allowed: int) -> None:
    builder = JournalBuilder(*FLEET)
    leases = [builder.take_lease(name).revision for name in FLEET]
    facts = msgspec.structs.replace(journal(builder, "20%").pools[0], base=base or None)
    later = msgspec.structs.replace(facts, max_unavailable=10)
    assert i8_violations(builder, pools=(later,)) == leases[allowed:]


def test_the_base_of_the_rollout_determines_the_threshold() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(lambda rollout: rollout.update(status={"base": 5}))
    builder.take_lease("n0")
    over = builder.take_lease("n1")
    assert i8_violations(builder, "20%") == [over.revision]


def test_the_threshold_is_fixed_when_the_target_begins() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(lambda rollout: rollout.update(status={"base": 10}))
    for name in FLEET[4:]:
        builder.delete("Node", name)
    builder.take_lease("n0")
    builder.take_lease("n1")
    over = builder.take_lease("n2")
    assert i8_violations(builder, "20%") == [over.revision]


def test_a_base_above_the_number_of_nodes_is_capped() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(lambda rollout: rollout.update(status={"base": 1000}))
    leases = [builder.take_lease(name).revision for name in FLEET]
    assert i8_violations(builder, "20%") == leases[2:]


def test_the_rollout_gives_the_counts_at_the_start() -> None:
    builder = JournalBuilder(*FLEET)
    fail_upgrade(builder, "n0")
    builder.take_lease("n1")

    def change(rollout: dict[str, Any]) -> None:
        known = {"threshold": 3, "failed": ["uid-n0"], "validated": ["uid-n8"]}
        rollout["status"] = {"base": 10, "targets": {TARGET: known}}

    builder.rollout(change)
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    builder.advance(100)
    builder.start("n1")
    builder.take_lease("n2")
    over = builder.take_lease("n3")
    later = journal(builder, 100, revisions=tuple(builder.revisions[begun:]), start=start)
    assert violations_of(later) == [("I8", "n3", over.revision)]


def test_nodes_in_flight_at_the_start_are_counted() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    builder.take_lease("n1")
    over = builder.take_lease("n2")
    later = journal(builder, revisions=tuple(builder.revisions[begun:]), start=start)
    members = msgspec.structs.replace(later.pools[0], members=frozenset(f"uid-{n}" for n in FLEET))
    later = msgspec.structs.replace(later, pools=(members,))
    assert violations_of(later) == [("I8", "n2", over.revision)]
    assert judge(later, faults=True).not_judged == {
        "I9": "events",
        "I10": "a run without injected faults",
        "I11": "events",
    }


def test_a_target_without_a_known_threshold_is_not_judged() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    other = PoolFacts(key="nvidiadriver-x", members=frozenset())
    verdict = judge(journal(builder, pools=(other,)))
    assert verdict.violations == ()
    assert verdict.not_judged["I8"] == (
        f"the failureThreshold of pool {POOL} when target {TARGET} began"
    )
