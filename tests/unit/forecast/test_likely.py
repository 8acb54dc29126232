import pytest

from libs.forecast.likely import Likely, likely, typical


@pytest.mark.parametrize(
    ("times", "plays", "expected"),
    [
        ((), 1, Likely(None, None)),
        ((5.0,), 1, Likely(5.0, 5.0)),
        ((None,), 1, Likely(None, None)),
        ((3.0, 1.0), 2, Likely(1.0, 3.0)),
        ((3.0, 1.0, 2.0), 3, Likely(2.0, 3.0)),
        ((1.0, None), 2, Likely(1.0, None)),
        ((1.0,), 2, Likely(1.0, None)),
        ((1.0,), 3, Likely(None, None)),
        (tuple(map(float, range(1, 21))), 20, Likely(10.0, 19.0)),
        ((*map(float, range(1, 20)), None), 20, Likely(10.0, 19.0)),
        ((*map(float, range(1, 19)), None, None), 20, Likely(10.0, None)),
    ],
)
def test_half_of_the_plays_and_nineteen_of_twenty(
    times: tuple[float | None, ...], plays: int, expected: Likely
) -> None:
    assert likely(times, plays) == expected


def test_a_time_that_is_said_is_never_too_early() -> None:
    for plays in range(1, 60):
        times = [float((number * 7919) % 101) for number in range(plays)]
        found = likely(times, plays)
        assert found.p50 is not None
        assert found.p95 is not None
        assert found.p50 <= found.p95
        assert sum(time <= found.p50 for time in times) >= plays * 0.5
        assert sum(time <= found.p95 for time in times) >= plays * 0.95


def test_more_times_than_plays_are_refused() -> None:
    with pytest.raises(ValueError, match="2 times cannot come from 1 plays"):
        likely((1.0, 2.0), 1)


def test_of_no_play_nothing_can_be_said() -> None:
    with pytest.raises(ValueError, match="0 times cannot come from 0 plays"):
        likely((), 0)


def test_the_typical_one_is_in_the_middle() -> None:
    assert typical(()) == 0.0
    assert typical((3.0, 1.0, 2.0)) == 2.0
    assert typical((3.0, 1.0)) == 3.0
