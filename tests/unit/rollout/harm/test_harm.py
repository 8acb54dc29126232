"""The arithmetic of bounded harm (docs/states.md#harm), row by row, over sets of uids."""

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Release, RolloutSpec, TargetRecord
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.pool import harm

NONE = RolloutSpec()


def uids(count: int, of: str = "n") -> tuple[str, ...]:
    return tuple(f"{of}{n}" for n in range(count))


def released(failures: int, target: str = "t") -> RolloutSpec:
    return RolloutSpec(release=Release(target=target, failures=failures))


@pytest.mark.parametrize(
    ("amount", "base", "expected"),
    [
        ("5%", 5, 1),
        ("5%", 20, 1),
        ("5%", 21, 2),
        ("5%", 30, 2),
        ("5%", 5000, 250),
        ("100%", 3, 3),
        (0, 100, 1),
        ("0%", 100, 1),
        (7, 3, 7),
        ("5%", 0, 1),
    ],
)
def test_the_threshold_of_a_proof(amount: int | str, base: int, expected: int) -> None:
    assert harm.threshold(StrategySpec(failure_threshold=amount), base=base) == expected


def test_a_release_accepts_failures_of_its_target_only() -> None:
    assert harm.accepted(NONE, "t") == 0
    assert harm.accepted(released(4), "t") == 4
    assert harm.accepted(released(4, "another"), "t") == 0


@pytest.mark.parametrize(
    ("threshold", "accepted", "failed", "expected"),
    [
        (1, 0, 0, False),
        (1, 0, 1, True),
        (3, 0, 2, False),
        (3, 0, 3, True),
        (3, 3, 5, False),
        (3, 3, 6, True),
        (3, 0, 9, True),
    ],
)
def test_when_a_target_is_halted(
    threshold: int, accepted: int, failed: int, expected: bool
) -> None:
    record = TargetRecord(threshold=threshold, accepted=accepted, failed=uids(failed))
    assert harm.is_halted(record) is expected
    assert harm.is_halted(replace(record, proven=True)) is expected
    assert bool(harm.halted_reason(record)) is expected


def test_a_halt_is_told_with_its_author_its_failures_and_its_limit() -> None:
    record = TargetRecord(threshold=1, failed=("a",))
    text = "by Sluice, as 1 node failed and the limit is 1 (failureThreshold)"
    assert harm.halted_reason(record) == text
    accepted = TargetRecord(threshold=2, accepted=1, failed=("a", "b", "c"))
    text = "by Sluice, as 3 nodes failed and the limit is 3 (failureThreshold 2, 1 accepted)"
    assert harm.halted_reason(accepted) == text


@pytest.mark.parametrize(
    ("threshold", "accepted", "failed", "flying", "expected"),
    [
        (1, 0, 0, 0, 1),
        (1, 0, 0, 1, 0),
        (3, 0, 0, 0, 3),
        (3, 0, 1, 1, 1),
        (3, 0, 1, 2, 0),
        (3, 0, 1, 3, -1),
        (2, 2, 2, 0, 2),
        (2, 2, 2, 2, 0),
    ],
)
def test_how_many_more_start_during_a_proof(
    threshold: int, accepted: int, failed: int, flying: int, expected: int
) -> None:
    record = TargetRecord(threshold=threshold, accepted=accepted, failed=uids(failed, "f"))
    assert harm.starts_left(record, set(uids(flying))) == expected


def test_a_failed_node_in_flight_counts_once() -> None:
    record = TargetRecord(threshold=3, failed=("a", "b"))
    assert harm.starts_left(record, {"a", "b"}) == 1
    assert harm.starts_left(record, {"a", "c"}) == 0


def test_a_proven_target_is_unlimited_until_it_is_halted() -> None:
    record = TargetRecord(threshold=3, proven=True, failed=("a", "b"))
    assert harm.starts_left(record, set(uids(500))) is None
    assert harm.is_halted(replace(record, failed=("a", "b", "c")))


def updated(
    record: TargetRecord,
    spec: RolloutSpec = NONE,
    failed: tuple[str, ...] = (),
    validated: tuple[str, ...] = (),
) -> TargetRecord:
    return harm.updated_record(
        record, spec, "t", failed=failed, validated=validated, vanished={}, now=50.0
    )


def test_nothing_new_returns_the_same_record() -> None:
    record = TargetRecord(threshold=2, failed=("a",), validated=("b",))
    assert updated(record) is record
    assert updated(record, failed=("a",), validated=("b",)) is record
    proven = TargetRecord(threshold=2, validated=("a", "b"), proven=True, proven_at=5.0)
    assert updated(proven, validated=("c",)) is proven


def test_failures_are_kept_as_a_set() -> None:
    once = updated(TargetRecord(threshold=3), failed=("b", "a"))
    assert once.failed == ("a", "b")
    assert updated(once, failed=("b",)).failed == ("a", "b")
    assert updated(once, validated=("a",)).failed == ("a", "b")


def test_a_recovered_failure_is_no_validation() -> None:
    once = updated(TargetRecord(threshold=2, failed=("a",)), validated=("a", "b"))
    assert (once.validated, once.proven) == (("b",), False)


def test_enough_validations_prove_a_target_and_no_more_are_kept() -> None:
    once = updated(TargetRecord(threshold=2), validated=("c", "a", "b"))
    assert once == TargetRecord(threshold=2, validated=("a", "b"), proven=True, proven_at=50.0)


def test_a_changed_release_restarts_the_proof() -> None:
    proven = TargetRecord(threshold=1, validated=("a",), proven=True, proven_at=9.0, failed=("b",))
    reopened = updated(proven, released(1))
    assert (reopened.accepted, reopened.validated, reopened.proven) == (1, (), False)
    assert reopened.halted_because == ""
    assert updated(reopened, released(1), validated=("c",)).proven
    taken_back = updated(reopened, NONE)
    assert taken_back.accepted == 0
    assert taken_back.halted_because.startswith("by Sluice, as 1 node failed ")


def test_the_last_good_target_is_the_newest_proven_one_without_a_halt() -> None:
    old = TargetRecord(threshold=1, proven=True, proven_at=1.0)
    new = TargetRecord(threshold=1, proven=True, proven_at=2.0)
    assert harm.last_good({"z": old, "a": new}) == "a"
    assert harm.last_good({"z": old, "a": replace(new, failed=("x",))}) == "z"
    assert harm.last_good({"a": TargetRecord(threshold=1)}) == ""


def test_only_a_proven_and_complete_target_can_be_dropped() -> None:
    complete = TargetRecord(threshold=1, proven=True, complete=True)
    assert harm.can_be_dropped(complete)
    assert not harm.can_be_dropped(replace(complete, complete=False))
    assert not harm.can_be_dropped(replace(complete, proven=False))
    assert not harm.can_be_dropped(replace(complete, failed=("a",)))


@pytest.mark.parametrize(
    ("record", "proven"),
    [
        (TargetRecord(threshold=5, validated=("a",)), True),
        (TargetRecord(threshold=5), False),
        (TargetRecord(threshold=1, failed=("a",), validated=("b",), halted_because="x"), False),
    ],
)
def test_a_target_that_all_nodes_have_is_proven_by_one(record: TargetRecord, proven: bool) -> None:
    assert not harm.completed_record(record, complete=False, now=7.0).proven
    done = harm.completed_record(record, complete=True, now=7.0)
    assert (done.proven, done.complete, done.proven_at) == (proven, proven, 7.0 * proven)
