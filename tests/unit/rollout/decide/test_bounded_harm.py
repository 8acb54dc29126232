"""Bounded harm, counted on small fleets with a driver that never loads (invariants.md#i8).

Thousands of nodes are counted in tests/component/rollout/properties.
"""

import pytest

from libs.contracts.rollout import RolloutPhase
from libs.rollout.pool import harm
from tests.unit.rollout.builders import NEW
from tests.unit.rollout.decide.failing_pool import (
    FailingPool,
    count_newcomers,
    count_starts,
    play_out,
)


@pytest.mark.parametrize(("count", "threshold"), [(100, 5), (30, 2), (5, 1), (2, 1)])
@pytest.mark.parametrize("share", [1, 3])
def test_no_more_nodes_fail_than_the_threshold(count: int, threshold: int, share: int) -> None:
    count_starts(count, threshold, share=share)


@pytest.mark.parametrize(("count", "threshold"), [(30, 2), (5, 1)])
def test_joining_leaving_and_driverless_nodes_do_not_raise_the_threshold(
    count: int, threshold: int
) -> None:
    count_newcomers(count, threshold)


@pytest.mark.parametrize(("count", "threshold"), [(100, 5), (30, 2), (5, 1)])
def test_a_release_allows_its_failures_and_the_threshold_again(count: int, threshold: int) -> None:
    play = FailingPool(count, max_unavailable="100%")
    play_out(play, at_a_time=threshold)
    play.release(threshold - 1)
    play_out(play, at_a_time=threshold)
    assert len(play.started) == 2 * threshold - 1
    play.release(2 * threshold)
    play_out(play, at_a_time=threshold)
    assert len(play.started) == min(count, 3 * threshold)
    assert play.most <= 3 * threshold
    assert play.status.phase is RolloutPhase.HALTED or count == len(play.started)


@pytest.mark.parametrize("count", [30, 5, 2])
def test_there_is_no_deadlock_before_or_after_the_release(count: int) -> None:
    """After the release the driver loads: the proof restarts, and every node is upgraded."""
    play = FailingPool(count, max_unavailable="25%")
    play_out(play, at_a_time=1)
    broken = len(play.started)
    play.release(broken)
    play.settle()
    for _ in range(4 * count):
        if not play.in_flight():
            break
        play.prove(play.in_flight()[:1])
        play.settle()
    record, counts = play.status.targets[NEW], play.status.counts
    assert not harm.is_halted(record)
    if count == 2:  # the broken node uses up the budget until a person repairs it
        assert (counts.unavailable, counts.limit, len(play.started)) == (1, 1, 1)
    else:
        assert (len(play.started), counts.done, record.proven) == (count, count - broken, True)


def test_once_proven_a_halt_lets_only_started_nodes_fail() -> None:
    play = FailingPool(1000, max_unavailable="50%")
    play.settle()
    play.prove(play.in_flight())
    play.settle()
    assert play.status.phase is RolloutPhase.PROVEN
    assert len(play.in_flight()) == 500
    first = play.in_flight()[:50]
    play.fail(first)
    play.settle()
    assert play.status.phase is RolloutPhase.HALTED
    started_before = len(play.in_flight())
    assert started_before == 450
    play_out(play, at_a_time=50)
    assert len(play.status.targets[NEW].failed) == 50 + started_before
    assert len(play.started) == 50 + 500


def test_policy_edits_back_and_forth_do_not_raise_the_threshold() -> None:
    play = FailingPool(100, max_unavailable="100%")
    for _ in range(4):
        play.want(NEW)
        play.settle()
        play.fail(play.in_flight()[:1])
        play.want("target-old")
        play.settle()
        play.fail(play.in_flight())
        play.settle()
    play.want(NEW)
    play_out(play, at_a_time=1)
    assert len(set(play.started)) == 5
