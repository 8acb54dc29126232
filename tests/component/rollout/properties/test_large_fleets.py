"""Bounded harm, counted on fleets of thousands (docs/invariants.md#i8)."""

import pytest

from tests.unit.rollout.decide.failing_pool import (
    FailingPool,
    count_newcomers,
    count_starts,
    play_out,
)


@pytest.mark.parametrize(("count", "threshold"), [(5000, 250), (1000, 50)])
@pytest.mark.parametrize("share", [1, 3])
def test_no_more_nodes_fail_than_the_threshold(count: int, threshold: int, share: int) -> None:
    count_starts(count, threshold, share=share)


def test_joining_and_leaving_nodes_do_not_raise_the_bound() -> None:
    count_newcomers(5000, 250)


def test_a_release_allows_the_accepted_failures_and_the_threshold() -> None:
    play = FailingPool(1000, max_unavailable="100%")
    play_out(play, at_a_time=50)
    play.release(49)
    play_out(play, at_a_time=50)
    assert len(play.started) == 99
    play.release(100)
    play_out(play, at_a_time=50)
    assert len(play.started) == 150
    assert play.most <= 150
