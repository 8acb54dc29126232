"""When a play is over, and the recorded results of its nodes."""

from collections.abc import Mapping

import pytest

from libs.contracts.waits import WaitCode
from libs.forecast.play_recorder import GIVE_UP_SECONDS, IDLE_SECONDS, PlayRecorder
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import Step, Wait
from tests.unit.forecast.builders import pool_with_limits
from tests.unit.rollout.builders import NOW, POOL, done, failed, fleet, in_flight_node, required

NODE = "node-1"


def waiting(code: WaitCode) -> Mapping[str, Wait]:
    return {NODE: Wait(code=code, detail="so", since=NOW)}


def recorder_with(waits: Mapping[str, Wait] | None = None) -> PlayRecorder:
    recorder = PlayRecorder(fleet(pool_with_limits(), required(NODE)), POOL, NOW)
    recorder.observe_decision(NOW, DecisionDelta(waits=waits or waiting(WaitCode.BUDGET)), {}, ())
    return recorder


def test_a_play_with_nothing_to_do_is_over_at_once() -> None:
    assert PlayRecorder(fleet(pool_with_limits(), done(NODE)), POOL, NOW).is_over(NOW, {})
    assert not recorder_with().is_over(NOW, {})


def test_a_play_ends_soon_without_nodes_in_flight() -> None:
    waits = waiting(WaitCode.SKIPPED)
    recorder = recorder_with(waits)
    assert not recorder.is_over(NOW + IDLE_SECONDS - 1, waits)
    assert recorder.is_over(NOW + IDLE_SECONDS, waits)


def test_a_play_waits_for_nodes_in_flight_and_then_for_other_nodes() -> None:
    recorder = recorder_with()
    recorder.observe(NOW, [in_flight_node(name=NODE)], ())
    assert not recorder.is_over(NOW + 10 * IDLE_SECONDS, {})
    recorder.observe(NOW + 10 * IDLE_SECONDS, [failed(NODE)], ())
    assert not recorder.is_over(NOW + 11 * IDLE_SECONDS - 1, {})
    assert recorder.is_over(NOW + 11 * IDLE_SECONDS, {})


def test_a_play_without_progress_ends() -> None:
    recorder = recorder_with()
    recorder.observe(NOW, [in_flight_node(name=NODE)], ())
    assert not recorder.is_over(NOW + GIVE_UP_SECONDS, {})
    assert recorder.is_over(NOW + GIVE_UP_SECONDS + 1, {})


def test_a_play_waits_for_timed_waits() -> None:
    waits = waiting(WaitCode.BACK_OFF)
    recorder = recorder_with(waits)
    assert not recorder.is_over(NOW + 5 * IDLE_SECONDS, waits)
    assert not recorder.is_over(NOW + 6 * IDLE_SECONDS - 1, {})
    assert recorder.is_over(NOW + 6 * IDLE_SECONDS, {})


@pytest.mark.parametrize("by_step", [False, True])
def test_the_final_wait_is_recorded(by_step: bool) -> None:
    recorder, waits = recorder_with(), waiting(WaitCode.VALIDATION)
    step = Step(actions=(), because="so", wait=waits[NODE])
    result = recorder.result({} if by_step else waits, {NODE: step} if by_step else {})
    assert result.nodes[NODE].wait == waits[NODE]
    assert recorder_with().result({}, {}).nodes[NODE].wait is None


def test_a_node_that_was_up_to_date_does_not_count_as_failed() -> None:
    recorder = recorder_with()
    recorder.observe(NOW + 5, [in_flight_node(name=NODE)], ())
    recorder.observe(NOW + 40, [done(NODE)], ())
    recorder.observe_decision(NOW + 40, DecisionDelta(), {}, [done(NODE)])
    recorder.observe(NOW + 50, [failed(NODE)], ())
    node_result = recorder.result({}, {}).nodes[NODE]
    assert (node_result.start, node_result.end, node_result.failed) == (5.0, 40.0, None)


def test_a_failure_is_recorded_until_the_node_recovers() -> None:
    recorder = recorder_with()
    recorder.observe(NOW + 5, [in_flight_node(name=NODE)], ())
    recorder.observe(NOW + 20, [failed(NODE)], ())
    recorder.observe(NOW + 30, [failed(NODE)], ())
    assert recorder.result({}, {}).nodes[NODE].failed == 20.0
    recorder.observe(NOW + 40, [required(NODE)], ())
    assert recorder.result({}, {}).nodes[NODE].failed is None


def test_a_failure_before_the_play_is_not_counted() -> None:
    recorder = PlayRecorder(fleet(pool_with_limits(), failed(NODE)), POOL, NOW)
    recorder.observe_decision(NOW, DecisionDelta(waits=waiting(WaitCode.FAILED)), {}, ())
    recorder.observe(NOW + 5, [failed(NODE)], ())
    assert recorder.result({}, {}).nodes[NODE].failed is None
