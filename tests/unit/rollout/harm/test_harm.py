"""The arithmetic of bounded harm (docs/states.md#harm), row by row, over sets of uids."""

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Release, RolloutSpec, TargetRecord
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout import harm

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
def test_so_many_prove_it_and_so_many_halt_it(amount: int | str, base: int, expected: int) -> None:
    assert harm.threshold(StrategySpec(failure_threshold=amount), base=base) == expected


def test_a_person_accepts_failures_of_one_target() -> None:
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
def test_halted(threshold: int, accepted: int, failed: int, expected: bool) -> None:
    record = TargetRecord(threshold=threshold, accepted=accepted, failed=uids(failed))
    assert harm.is_halted(record) is expected
    assert harm.is_halted(replace(record, proven=True)) is expected
    because = f"{failed} of {threshold + accepted} allowed failures" if expected else ""
    assert harm.halted_reason(record) == because


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
def test_how_many_more_start_while_it_proves_itself(
    threshold: int, accepted: int, failed: int, flying: int, expected: int
) -> None:
    record = TargetRecord(threshold=threshold, accepted=accepted, failed=uids(failed, "f"))
    assert harm.starts_left(record, set(uids(flying))) == expected


def test_a_node_in_flight_that_failed_counts_once() -> None:
    record = TargetRecord(threshold=3, failed=("a", "b"))
    assert harm.starts_left(record, {"a", "b"}) == 1
    assert harm.starts_left(record, {"a", "c"}) == 0


def test_what_is_proven_is_limited_by_nothing_until_it_is_halted() -> None:
    record = TargetRecord(threshold=3, proven=True, failed=("a", "b"))
    assert harm.starts_left(record, set(uids(500))) is None
    assert harm.is_halted(replace(record, failed=("a", "b", "c")))


def reckoned(
    record: TargetRecord,
    spec: RolloutSpec = NONE,
    failed: tuple[str, ...] = (),
    validated: tuple[str, ...] = (),
) -> TargetRecord:
    return harm.updated_record(record, spec, "t", failed=failed, validated=validated, now=50.0)


def test_what_is_not_new_changes_nothing() -> None:
    record = TargetRecord(threshold=2, failed=("a",), validated=("b",))
    assert reckoned(record) is record
    assert reckoned(record, failed=("a",), validated=("b",)) is record


def test_failures_stick_and_are_a_set() -> None:
    once = reckoned(TargetRecord(threshold=3), failed=("b", "a"))
    assert once.failed == ("a", "b")
    assert reckoned(once, failed=("b",)).failed == ("a", "b")
    assert reckoned(once, validated=("a",)).failed == ("a", "b")


def test_a_healed_failure_is_no_validation() -> None:
    once = reckoned(TargetRecord(threshold=2, failed=("a",)), validated=("a", "b"))
    assert (once.validated, once.proven) == (("b",), False)


def test_so_many_validations_prove_it_and_no_more_are_kept() -> None:
    once = reckoned(TargetRecord(threshold=2), validated=("c", "a", "b"))
    assert once == TargetRecord(threshold=2, validated=("a", "b"), proven=True, proven_at=50.0)


def test_another_number_of_accepted_failures_begins_the_proof_anew() -> None:
    proven = TargetRecord(threshold=1, validated=("a",), proven=True, proven_at=9.0, failed=("b",))
    again = reckoned(proven, released(1))
    assert (again.accepted, again.validated, again.proven) == (1, (), False)
    assert again.halted_because == ""
    assert reckoned(again, released(1), validated=("c",)).proven
    taken_back = reckoned(again, NONE)
    assert (taken_back.accepted, taken_back.halted_because) == (0, "1 of 1 allowed failures")


def test_the_last_good_is_the_newest_that_was_proven_and_is_not_halted() -> None:
    old = TargetRecord(threshold=1, proven=True, proven_at=1.0)
    new = TargetRecord(threshold=1, proven=True, proven_at=2.0)
    assert harm.last_good({"z": old, "a": new}) == "a"
    assert harm.last_good({"z": old, "a": replace(new, failed=("x",))}) == "z"
    assert harm.last_good({"a": TargetRecord(threshold=1)}) == ""


def test_only_what_was_proven_and_complete_can_be_forgotten() -> None:
    complete = TargetRecord(threshold=1, proven=True, complete=True)
    assert harm.can_be_dropped(complete)
    assert not harm.can_be_dropped(replace(complete, complete=False))
    assert not harm.can_be_dropped(replace(complete, proven=False))
    assert not harm.can_be_dropped(replace(complete, failed=("a",)))
