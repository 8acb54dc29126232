from collections.abc import Callable

import pytest

from libs.forecast.plan import find_required_limits


def recorded_makespan(
    seconds_for: Callable[[int], float | None], *, parallel_cap: int | None = None
) -> tuple[Callable[[int, int | None], float | None], list[tuple[int, int | None]]]:
    """Return a makespan by maxUnavailable that records its calls.

    `parallel_cap` limits the nodes at a time unless maxParallelUpgrades is 0.
    """
    calls: list[tuple[int, int | None]] = []

    def makespan(number: int, parallel: int | None) -> float | None:
        calls.append((number, parallel))
        effective = number if parallel_cap is None or parallel == 0 else min(number, parallel_cap)
        return seconds_for(effective)

    return makespan, calls


@pytest.mark.parametrize("nodes", [1, 2, 7, 30])
@pytest.mark.parametrize("least", [0, 1, 5])
def test_the_smallest_sufficient_limit_is_found(nodes: int, least: int) -> None:
    for limit in range(1, 400, 7):
        sufficient = [
            number
            for number in range(nodes + 1)
            if number and 100.0 * -(-nodes // number) <= limit and number >= min(least, nodes)
        ]
        makespan, _ = recorded_makespan(
            lambda number: 100.0 * -(-nodes // number) if number else None
        )
        found = find_required_limits(
            makespan, nodes=nodes, seconds=limit, least=min(least, nodes), parallel=0
        )
        assert found.max_unavailable == (min(sufficient) if sufficient else None)
        assert found.max_parallel is None


def test_a_limit_of_zero_may_suffice() -> None:
    makespan, _ = recorded_makespan(lambda number: 10.0 if not number else 5.0)
    assert (
        find_required_limits(makespan, nodes=8, seconds=10, least=0, parallel=1).max_unavailable
        == 0
    )


def test_a_parallel_limit_that_has_to_change_is_named() -> None:
    makespan, _ = recorded_makespan(
        lambda number: 100.0 / number if number else None, parallel_cap=1
    )
    found = find_required_limits(makespan, nodes=10, seconds=25, least=1, parallel=1)
    assert (found.max_unavailable, found.max_parallel) == (4, 0)
    assert "only if maxParallelUpgrades (now 1) is 0, or at least 4 too" in found.why


def test_a_limit_that_takes_exactly_the_given_time_suffices() -> None:
    makespan, _ = recorded_makespan(lambda number: 100.0 / number if number else None)
    assert (
        find_required_limits(makespan, nodes=4, seconds=25, least=0, parallel=0).max_unavailable
        == 4
    )
    makespan, _ = recorded_makespan(
        lambda number: 100.0 / number if number else None, parallel_cap=1
    )
    found = find_required_limits(makespan, nodes=4, seconds=25, least=0, parallel=1)
    assert (found.max_unavailable, found.max_parallel) == (4, 0)


def test_no_limit_is_named_if_none_is_sufficient() -> None:
    makespan, calls = recorded_makespan(
        lambda number: 100.0 / number if number else None, parallel_cap=1
    )
    found = find_required_limits(makespan, nodes=10, seconds=5, least=0, parallel=1)
    assert (found.max_unavailable, found.max_parallel) == (None, None)
    assert "with all nodes at once it ends only after 10 s (p95)" in found.why
    assert calls == [(10, None), (10, 0)]


def test_the_best_time_is_named_if_no_limit_is_sufficient() -> None:
    makespan, _ = recorded_makespan(lambda number: 90.0)
    found = find_required_limits(makespan, nodes=10, seconds=60, least=0, parallel=0)
    assert found.max_unavailable is None
    assert "with all nodes at once it ends only after 1 min 30 s (p95)" in found.why


def test_an_unknown_makespan_gives_no_limit() -> None:
    makespan, calls = recorded_makespan(lambda number: None)
    found = find_required_limits(makespan, nodes=10, seconds=60, least=0, parallel=2)
    assert found.max_unavailable is None
    assert "the end of the last node is unknown" in found.why
    assert calls == [(10, None), (10, 0)]


def test_a_time_in_the_past_needs_no_play() -> None:
    makespan, calls = recorded_makespan(lambda number: 0.0)
    assert (
        find_required_limits(makespan, nodes=3, seconds=0, least=0, parallel=0).why
        == "that time has passed"
    )
    assert not calls


def test_few_limits_are_tried() -> None:
    makespan, calls = recorded_makespan(lambda number: 1e6 / number if number else None)
    found = find_required_limits(makespan, nodes=5000, seconds=1000, least=600, parallel=0)
    assert found.max_unavailable == 1000
    assert len({number for number, _ in calls}) <= 22


@pytest.mark.parametrize(
    ("nodes", "numbers"),
    [(5000, [5000, 0, 2, 6, 4, 3, 3]), (6, [6, 0, 2, 4, 3, 3])],
)
def test_small_limits_are_tried_first(nodes: int, numbers: list[int]) -> None:
    makespan, calls = recorded_makespan(lambda number: 90.0 / number if number else None)
    assert (
        find_required_limits(makespan, nodes=nodes, seconds=30, least=0, parallel=0).max_unavailable
        == 3
    )
    assert [number for number, _ in calls] == numbers
