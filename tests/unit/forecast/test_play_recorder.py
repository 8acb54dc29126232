"""When a play is over, and what is written down of a node."""

from collections.abc import Mapping

import pytest

from libs.contracts.node import WaitCode
from libs.forecast.play_recorder import GIVE_UP_SECONDS, IDLE_SECONDS, PlayRecorder
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import Step, Wait
from tests.unit.forecast.builders import pool_with_limits
from tests.unit.rollout.builders import NOW, POOL, done, failed, fleet, in_flight_node, required

NODE = "node-1"


def waiting(code: WaitCode) -> Mapping[str, Wait]:
    return {NODE: Wait(code=code, detail="so", since=NOW)}


def watching(waits: Mapping[str, Wait] | None = None) -> PlayRecorder:
    watch = PlayRecorder(fleet(pool_with_limits(), required(NODE)), POOL, NOW)
    watch.observe_decision(NOW, DecisionDelta(waits=waits or waiting(WaitCode.BUDGET)), {}, ())
    return watch


def test_with_nothing_before_anybody_it_is_over_at_once() -> None:
    assert PlayRecorder(fleet(pool_with_limits(), done(NODE)), POOL, NOW).is_over(NOW, {})
    assert not watching().is_over(NOW, {})


def test_a_play_ends_soon_without_nodes_in_flight() -> None:
    waits = waiting(WaitCode.SKIPPED)
    watch = watching(waits)
    assert not watch.is_over(NOW + IDLE_SECONDS - 1, waits)
    assert watch.is_over(NOW + IDLE_SECONDS, waits)


def test_a_play_waits_for_nodes_in_flight_and_then_for_the_others() -> None:
    watch = watching()
    watch.observe(NOW, [in_flight_node(name=NODE)], ())
    assert not watch.is_over(NOW + 10 * IDLE_SECONDS, {})
    watch.observe(NOW + 10 * IDLE_SECONDS, [failed(NODE)], ())
    assert not watch.is_over(NOW + 11 * IDLE_SECONDS - 1, {})
    assert watch.is_over(NOW + 11 * IDLE_SECONDS, {})


def test_a_play_without_progress_ends() -> None:
    watch = watching()
    watch.observe(NOW, [in_flight_node(name=NODE)], ())
    assert not watch.is_over(NOW + GIVE_UP_SECONDS, {})
    assert watch.is_over(NOW + GIVE_UP_SECONDS + 1, {})


def test_a_play_waits_for_timed_waits() -> None:
    waits = waiting(WaitCode.BACK_OFF)
    watch = watching(waits)
    assert not watch.is_over(NOW + 5 * IDLE_SECONDS, waits)
    assert not watch.is_over(NOW + 6 * IDLE_SECONDS - 1, {})
    assert watch.is_over(NOW + 6 * IDLE_SECONDS, {})


@pytest.mark.parametrize("by_step", [False, True])
def test_the_final_wait_is_recorded(by_step: bool) -> None:
    watch, waits = watching(), waiting(WaitCode.VALIDATION)
    step = Step(actions=(), because="so", wait=waits[NODE])
    result = watch.result({} if by_step else waits, {NODE: step} if by_step else {})
    assert result.nodes[NODE].wait == waits[NODE]
    assert watching().result({}, {}).nodes[NODE].wait is None


def test_a_node_that_was_up_to_date_does_not_count_as_failed() -> None:
    watch = watching()
    watch.observe(NOW + 5, [in_flight_node(name=NODE)], ())
    watch.observe(NOW + 40, [done(NODE)], ())
    watch.observe_decision(NOW + 40, DecisionDelta(), {}, [done(NODE)])
    watch.observe(NOW + 50, [failed(NODE)], ())
    node_result = watch.result({}, {}).nodes[NODE]
    assert (node_result.start, node_result.end, node_result.failed) == (5.0, 40.0, None)


def test_a_failure_is_recorded_until_the_node_recovers() -> None:
    watch = watching()
    watch.observe(NOW + 5, [in_flight_node(name=NODE)], ())
    watch.observe(NOW + 20, [failed(NODE)], ())
    watch.observe(NOW + 30, [failed(NODE)], ())
    assert watch.result({}, {}).nodes[NODE].failed == 20.0
    watch.observe(NOW + 40, [required(NODE)], ())
    assert watch.result({}, {}).nodes[NODE].failed is None


def test_a_failure_before_the_play_is_not_counted() -> None:
    watch = PlayRecorder(fleet(pool_with_limits(), failed(NODE)), POOL, NOW)
    watch.observe_decision(NOW, DecisionDelta(waits=waiting(WaitCode.FAILED)), {}, ())
    watch.observe(NOW + 5, [failed(NODE)], ())
    assert watch.result({}, {}).nodes[NODE].failed is None
