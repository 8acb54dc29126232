"""Distributions, and numbers drawn from a question."""

import pytest

from libs.forecast.world import EmpiricalDistribution, Lognormal
from libs.forecast.world.distributions import draw


def test_a_lognormal_is_named_by_two_of_its_quantiles() -> None:
    spread = Lognormal(120.0, 300.0)
    assert spread.quantile(0.5) == pytest.approx(120.0)
    assert spread.quantile(0.95) == pytest.approx(300.0)
    assert spread.quantile(0.05) == pytest.approx(48.0)
    assert spread.share_below(120.0) == pytest.approx(0.5)
    assert spread.share_below(300.0) == pytest.approx(0.95)
    assert spread.share_below(0.0) == 0.0
    assert spread.share_below(spread.quantile(0.123)) == pytest.approx(0.123)


@pytest.mark.parametrize(("median", "p95"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 2.0), (3.0, 2.0)])
def test_invalid_distributions_are_refused(median: float, p95: float) -> None:
    with pytest.raises(ValueError, match="are no distribution"):
        Lognormal(median, p95)


def test_observations_are_interpolated_between_samples() -> None:
    spread = EmpiricalDistribution([30.0, 10.0, 20.0])
    assert [spread.quantile(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] == [10, 15, 20, 25, 30]
    assert [spread.share_below(seconds) for seconds in (5, 10, 15, 25, 30, 99)] == [
        0,
        0,
        0.25,
        0.75,
        1,
        1,
    ]


def test_equal_samples_are_a_jump() -> None:
    spread = EmpiricalDistribution([5.0, 5.0, 5.0, 9.0])
    assert spread.share_below(5.0) == pytest.approx(2 / 3)
    assert spread.share_below(4.9) == 0.0
    assert spread.quantile(0.6) == 5.0


@pytest.mark.parametrize("samples", [[], [1.0], [-1.0, 2.0]])
def test_too_few_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="are no distribution"):
        EmpiricalDistribution(samples)


def test_numbers_are_spread_evenly_and_know_nothing_of_each_other() -> None:
    pairs = [draw(f"question {number}") for number in range(10_000)]
    for column in zip(*pairs, strict=True):
        for tenth in range(10):
            share = sum(tenth / 10 <= value < (tenth + 1) / 10 for value in column) / 10_000
            assert share == pytest.approx(0.1, abs=0.01)
        assert min(column) > 0.0
        assert max(column) < 1.0
    both = sum(one < 0.5 and other < 0.5 for one, other in pairs) / 10_000
    assert both == pytest.approx(0.25, abs=0.015)
