import pytest

from libs.forecast.rollout_plan import Percentiles, percentiles_of, upper_median


@pytest.mark.parametrize(
    ("times", "plays", "expected"),
    [
        ((), 1, Percentiles(None, None)),
        ((5.0,), 1, Percentiles(5.0, 5.0)),
        ((None,), 1, Percentiles(None, None)),
        ((3.0, 1.0), 2, Percentiles(1.0, 3.0)),
        ((3.0, 1.0, 2.0), 3, Percentiles(2.0, 3.0)),
        ((1.0, None), 2, Percentiles(1.0, None)),
        ((1.0,), 2, Percentiles(1.0, None)),
        ((1.0,), 3, Percentiles(None, None)),
        (tuple(map(float, range(1, 21))), 20, Percentiles(10.0, 19.0)),
        ((*map(float, range(1, 20)), None), 20, Percentiles(10.0, 19.0)),
        ((*map(float, range(1, 19)), None, None), 20, Percentiles(10.0, None)),
    ],
)
def test_half_of_the_plays_and_nineteen_of_twenty(
    times: tuple[float | None, ...], plays: int, expected: Percentiles
) -> None:
    assert percentiles_of(times, plays) == expected


def test_a_percentile_is_never_too_early() -> None:
    for plays in range(1, 60):
        times = [float((number * 7919) % 101) for number in range(plays)]
        found = percentiles_of(times, plays)
        assert found.p50 is not None
        assert found.p95 is not None
        assert found.p50 <= found.p95
        assert sum(time <= found.p50 for time in times) >= plays * 0.5
        assert sum(time <= found.p95 for time in times) >= plays * 0.95


def test_more_times_than_plays_are_refused() -> None:
    with pytest.raises(ValueError, match="2 times cannot come from 1 plays"):
        percentiles_of((1.0, 2.0), 1)


def test_percentiles_of_no_play_are_refused() -> None:
    with pytest.raises(ValueError, match="0 times cannot come from 0 plays"):
        percentiles_of((), 0)


def test_the_typical_one_is_in_the_middle() -> None:
    assert upper_median(()) == 0.0
    assert upper_median((3.0, 1.0, 2.0)) == 2.0
    assert upper_median((3.0, 1.0)) == 3.0
