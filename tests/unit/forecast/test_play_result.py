from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import InFlight, TargetRecord
from libs.contracts.waits import WaitCode
from libs.forecast.play_result import (
    CapacityPoint,
    CapacityTracker,
    ProofDelay,
    ProofResult,
    ProofTracker,
)
from libs.rollout.decision import Wait
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from tests.unit.rollout.builders import NEW, OLD, done, failed, in_flight_node, pool


def pool_with(*in_flight: str, **record: Any) -> PoolView:
    in_flight_entries = {
        f"uid-{name}": InFlight(node=name, token=1, target=NEW, since=0.0) for name in in_flight
    }
    target_record = replace(TargetRecord(threshold=2), **record)
    return pool(status={"in_flight": in_flight_entries, "targets": {NEW: target_record}})


def waiting(code: WaitCode, detail: str = "ml/train") -> Wait:
    return Wait(code=code, detail=detail, since=0.0)


def test_the_longest_wait_for_others_is_the_delay() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a", "b"), 0.0)
    tracker.observe_wait("a", waiting(WaitCode.JOBS), 10.0)
    tracker.observe_wait("b", waiting(WaitCode.EVICTION, "ml/web"), 10.0)
    tracker.observe_wait("b", waiting(WaitCode.VALIDATION), 40.0)
    tracker.observe_wait("a", None, 100.0)
    tracker.observe_wait("a", waiting(WaitCode.VALIDATION), 101.0)
    tracker.observe_pool(pool_with(proven=True), 200.0)
    delay = ProofDelay(node="a", detail="ml/train", seconds=90.0)
    assert tracker.result() == ProofResult(threshold=2, proven_at=200.0, delay=delay)


def test_a_delay_by_an_endless_wait_is_infinite() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a"), 0.0)
    tracker.observe_wait("a", waiting(WaitCode.PDB, "ml/web: refused"), 10.0)
    tracker.observe_wait("a", waiting(WaitCode.PDB, "ml/web: refused again"), 20.0)
    found = not_none(tracker.result())
    assert found.proven_at is None
    assert found.delay == ProofDelay(node="a", detail="ml/web: refused", seconds=inf)


def test_nodes_that_are_not_in_flight_cause_no_delay() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a"), 0.0)
    tracker.observe_wait("b", waiting(WaitCode.JOBS), 0.0)
    tracker.observe_wait("a", waiting(WaitCode.JOBS), 5.0)
    tracker.observe_pool(pool_with(), 25.0)
    found = not_none(tracker.result())
    assert found.delay == ProofDelay(node="a", detail="ml/train", seconds=20.0)


def test_a_target_that_was_proven_before_has_nothing_to_prove() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a", proven=True), 0.0)
    tracker.observe_wait("a", waiting(WaitCode.JOBS), 0.0)
    tracker.observe_pool(pool_with(proven=True), 100.0)
    assert tracker.result() is None
    assert ProofTracker(pool()).result() is None


def test_the_reason_of_a_halt_is_kept() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a"), 0.0)
    assert tracker.halted == ""
    tracker.observe_pool(pool_with(halted_because="2 of 2 allowed failures"), 10.0)
    assert tracker.halted == "2 of 2 allowed failures"


@pytest.mark.parametrize("changes", [{"target": OLD}, {"outside": True}])
def test_nodes_in_flight_for_other_targets_cause_no_delay(changes: dict[str, Any]) -> None:
    pool_view = pool_with("a")
    assert pool_view.rollout is not None
    status = pool_view.rollout.status
    in_flight = {uid: replace(entry, **changes) for uid, entry in status.in_flight.items()}
    other = replace(
        pool_view, rollout=replace(pool_view.rollout, status=replace(status, in_flight=in_flight))
    )
    for observed, expected in ((pool_view, 20.0), (other, None)):
        tracker = ProofTracker(pool())
        tracker.observe_pool(observed, 0.0)
        tracker.observe_wait("a", waiting(WaitCode.JOBS), 5.0)
        tracker.observe_wait("a", None, 25.0)
        found = not_none(tracker.result())
        assert (found.delay and found.delay.seconds) == expected


def test_waits_after_the_proof_cause_no_delay() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a"), 0.0)
    tracker.observe_pool(pool_with("a", proven=True), 100.0)
    tracker.observe_wait("a", waiting(WaitCode.JOBS), 110.0)
    tracker.observe_wait("a", None, 900.0)
    assert tracker.result() == ProofResult(threshold=2, proven_at=100.0, delay=None)


def test_a_pool_without_a_rollout_has_no_proof() -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(replace(pool(), rollout=None), 0.0)
    assert tracker.result() is None


@pytest.mark.parametrize("ended", [False, True])
def test_of_equal_delays_the_first_is_named(ended: bool) -> None:
    tracker = ProofTracker(pool())
    tracker.observe_pool(pool_with("a", "b"), 0.0)
    for name in ("b", "a"):
        tracker.observe_wait(name, waiting(WaitCode.JOBS), 10.0)
    if ended:
        for name in ("b", "a"):
            tracker.observe_wait(name, None, 40.0)
    found = not_none(tracker.result())
    assert not_none(found.delay).node == ("b" if ended else "a")


def test_of_equal_losses_the_earliest_is_kept() -> None:
    tracker = CapacityTracker()
    for name in ("a", "b", "c"):
        tracker.observe(done(name), 0.0, first=True)
    tracker.update(0.0)
    assert tracker.loss == CapacityPoint(nodes=0, gpus=0, at=0.0)
    tracker.observe(in_flight_node(name="a"), 10.0)
    tracker.observe(replace(done("b"), ready=False), 10.0)
    tracker.update(10.0)
    tracker.observe(done("a"), 30.0)
    tracker.observe(in_flight_node(name="c"), 30.0)
    tracker.update(30.0)
    assert tracker.loss == CapacityPoint(nodes=2, gpus=16, at=10.0)
    assert tracker.gpu_seconds(40.0) == pytest.approx(8 * (20 + 30 + 10))
    assert tracker.gpu_seconds(20.0) == pytest.approx(8 * (10 + 10))


def test_nodes_that_an_upgrade_keeps_away_lose_gpu_time_from_the_beginning_on() -> None:
    for node in (in_flight_node(name="a"), failed("a")):
        tracker = CapacityTracker()
        tracker.observe(node, 0.0, first=True)
        assert tracker.gpu_seconds(100.0) == pytest.approx(8 * 100)
        tracker.observe(done("a"), 50.0)
        assert tracker.gpu_seconds(100.0) == pytest.approx(8 * 50)
        assert not tracker.last_outages, "how long it was away is not known"


def test_nodes_that_something_else_keeps_away_count_as_loss_but_lose_no_gpu_time() -> None:
    tracker = CapacityTracker()
    tracker.observe(done("a", ready=False), 0.0, first=True)
    tracker.update(0.0)
    assert tracker.loss == CapacityPoint(nodes=1, gpus=8, at=0.0)
    assert tracker.gpu_seconds(100.0) == 0.0
    tracker.observe(done("a"), 50.0)
    tracker.observe(in_flight_node(name="a"), 60.0)
    assert tracker.gpu_seconds(100.0) == pytest.approx(8 * 40)


def test_unavailable_nodes_have_their_last_reason_and_those_that_were_so_before_are_known() -> None:
    tracker = CapacityTracker()
    tracker.observe(failed("a"), 0.0, first=True)
    tracker.observe(in_flight_node(name="b"), 5.0)
    tracker.observe(failed("b"), 9.0)
    assert tracker.reasons == {"a": "failed", "b": "failed"}
    assert tracker.from_beginning == {"a"}
    tracker.observe(done("a"), 10.0)
    tracker.observe(failed("a"), 20.0)
    assert tracker.from_beginning == frozenset()


def test_a_lost_node_counts_once() -> None:
    tracker = CapacityTracker()
    tracker.node_lost("a", 4, 5.0, "in an upgrade")
    tracker.node_lost("a", 4, 6.0, "in an upgrade")
    tracker.observe(replace(in_flight_node(name="a"), gpus=4), 7.0)
    tracker.update(7.0)
    assert tracker.loss == CapacityPoint(nodes=1, gpus=4, at=7.0)
    assert tracker.gpu_seconds(9.0) == pytest.approx(4 * 4)
