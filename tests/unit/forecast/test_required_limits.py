from collections.abc import Callable

import pytest

from libs.forecast.plan import find_required_limits


def tried(
    took: Callable[[int], float | None], *, cap: int | None = None
) -> tuple[Callable[[int, int | None], float | None], list[tuple[int, int | None]]]:
    """Seconds by number; with `cap` no more places count unless the other limit is lifted."""
    calls: list[tuple[int, int | None]] = []

    def tries(number: int, parallel: int | None) -> float | None:
        calls.append((number, parallel))
        held = number if cap is None or parallel == 0 else min(number, cap)
        return took(held)

    return tries, calls


@pytest.mark.parametrize("nodes", [1, 2, 7, 30])
@pytest.mark.parametrize("least", [0, 1, 5])
def test_it_is_the_smallest_that_does(nodes: int, least: int) -> None:
    for limit in range(1, 400, 7):
        by_hand = [
            number
            for number in range(nodes + 1)
            if number and 100.0 * -(-nodes // number) <= limit and number >= min(least, nodes)
        ]
        tries, _ = tried(lambda number: 100.0 * -(-nodes // number) if number else None)
        found = find_required_limits(
            tries, nodes=nodes, seconds=limit, least=min(least, nodes), parallel=0
        )
        assert found.max_unavailable == (min(by_hand) if by_hand else None)
        assert found.max_parallel is None


def test_none_at_all_may_do() -> None:
    tries, _ = tried(lambda number: 10.0 if not number else 5.0)
    assert (
        find_required_limits(tries, nodes=8, seconds=10, least=0, parallel=1).max_unavailable == 0
    )


def test_a_parallel_limit_that_has_to_change_is_named() -> None:
    tries, _ = tried(lambda number: 100.0 / number if number else None, cap=1)
    found = find_required_limits(tries, nodes=10, seconds=25, least=1, parallel=1)
    assert (found.max_unavailable, found.max_parallel) == (4, 0)
    assert "only with maxParallelUpgrades (now 1) set to 0" in found.why


def test_just_in_time_is_in_time() -> None:
    tries, _ = tried(lambda number: 100.0 / number if number else None)
    assert (
        find_required_limits(tries, nodes=4, seconds=25, least=0, parallel=0).max_unavailable == 4
    )
    tries, _ = tried(lambda number: 100.0 / number if number else None, cap=1)
    found = find_required_limits(tries, nodes=4, seconds=25, least=0, parallel=1)
    assert (found.max_unavailable, found.max_parallel) == (4, 0)


def test_no_limit_is_named_if_none_is_sufficient() -> None:
    tries, calls = tried(lambda number: 100.0 / number if number else None, cap=1)
    found = find_required_limits(tries, nodes=10, seconds=5, least=0, parallel=1)
    assert (found.max_unavailable, found.max_parallel) == (None, None)
    assert "with all nodes at a time it takes 10 s" in found.why
    assert calls == [(10, None), (10, 0)]


def test_the_best_time_is_named_if_no_limit_is_sufficient() -> None:
    tries, _ = tried(lambda number: 90.0)
    found = find_required_limits(tries, nodes=10, seconds=60, least=0, parallel=0)
    assert found.max_unavailable is None
    assert "with all nodes at a time it takes 2 min" in found.why


def test_an_unknown_makespan_gives_no_limit() -> None:
    tries, calls = tried(lambda number: None)
    found = find_required_limits(tries, nodes=10, seconds=60, least=0, parallel=2)
    assert found.max_unavailable is None
    assert "the end of the last node is unknown" in found.why
    assert calls == [(10, None), (10, 0)]


def test_a_time_that_is_over_needs_no_play() -> None:
    tries, calls = tried(lambda number: 0.0)
    assert (
        find_required_limits(tries, nodes=3, seconds=0, least=0, parallel=0).why
        == "that time has passed"
    )
    assert not calls


def test_few_numbers_are_tried() -> None:
    tries, calls = tried(lambda number: 1e6 / number if number else None)
    found = find_required_limits(tries, nodes=5000, seconds=1000, least=600, parallel=0)
    assert found.max_unavailable == 1000
    assert len({number for number, _ in calls}) <= 22


@pytest.mark.parametrize(
    ("nodes", "numbers"),
    [(5000, [5000, 0, 2, 6, 4, 3, 3]), (6, [6, 0, 2, 4, 3, 3])],
)
def test_a_small_number_is_looked_for_among_small_ones(nodes: int, numbers: list[int]) -> None:
    tries, calls = tried(lambda number: 90.0 / number if number else None)
    assert (
        find_required_limits(tries, nodes=nodes, seconds=30, least=0, parallel=0).max_unavailable
        == 3
    )
    assert [number for number, _ in calls] == numbers
