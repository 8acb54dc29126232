from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import WaitCode
from libs.contracts.rollout import InFlight, TargetRecord
from libs.forecast.play_result import (
    CapacityLoss,
    CapacityTracker,
    ProofDelay,
    ProofResult,
    ProofTracker,
)
from libs.rollout.decision import Wait
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import NEW, OLD, done, failed, in_flight_node, pool


def seen(*flying: str, **record: Any) -> PoolView:
    entries = {
        f"uid-{name}": InFlight(node=name, token=1, target=NEW, since=0.0) for name in flying
    }
    known = replace(TargetRecord(threshold=2), **record)
    return pool(status={"in_flight": entries, "targets": {NEW: known}})


def waiting(code: WaitCode, detail: str = "ml/train") -> Wait:
    return Wait(code=code, detail=detail, since=0.0)


def test_the_longest_wait_for_others_is_the_delay() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a", "b"), 0.0)
    proving.observe_wait("a", waiting(WaitCode.JOBS), 10.0)
    proving.observe_wait("b", waiting(WaitCode.EVICTION, "ml/web"), 10.0)
    proving.observe_wait("b", waiting(WaitCode.VALIDATION), 40.0)
    proving.observe_wait("a", None, 100.0)
    proving.observe_wait("a", waiting(WaitCode.VALIDATION), 101.0)
    proving.observe_pool(seen(proven=True), 200.0)
    held = ProofDelay(node="a", detail="ml/train", seconds=90.0)
    assert proving.result() == ProofResult(threshold=2, proven_at=200.0, delay=held)


def test_a_wait_that_never_ends_is_without_an_end() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a"), 0.0)
    proving.observe_wait("a", waiting(WaitCode.PDB, "ml/web: refused"), 10.0)
    proving.observe_wait("a", waiting(WaitCode.PDB, "ml/web: refused again"), 20.0)
    found = proving.result()
    assert found is not None
    assert found.proven_at is None
    assert found.delay == ProofDelay(node="a", detail="ml/web: refused", seconds=inf)


def test_nodes_that_are_not_in_flight_cause_no_delay() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a"), 0.0)
    proving.observe_wait("b", waiting(WaitCode.JOBS), 0.0)
    proving.observe_wait("a", waiting(WaitCode.JOBS), 5.0)
    proving.observe_pool(seen(), 25.0)
    found = proving.result()
    assert found is not None
    assert found.delay == ProofDelay(node="a", detail="ml/train", seconds=20.0)


def test_a_target_that_was_proven_before_has_nothing_to_prove() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a", proven=True), 0.0)
    proving.observe_wait("a", waiting(WaitCode.JOBS), 0.0)
    proving.observe_pool(seen(proven=True), 100.0)
    assert proving.result() is None
    assert ProofTracker(pool()).result() is None


def test_why_it_is_halted() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a"), 0.0)
    assert proving.halted == ""
    proving.observe_pool(seen(halted_because="2 of 2 allowed failures"), 10.0)
    assert proving.halted == "2 of 2 allowed failures"


@pytest.mark.parametrize("changes", [{"target": OLD}, {"outside": True}])
def test_nodes_in_flight_for_other_targets_cause_no_delay(changes: dict[str, Any]) -> None:
    one = seen("a")
    assert one.rollout is not None
    status = one.rollout.status
    flying = {uid: replace(each, **changes) for uid, each in status.in_flight.items()}
    other = replace(one, rollout=replace(one.rollout, status=replace(status, in_flight=flying)))
    for shown, expected in ((one, 20.0), (other, None)):
        proving = ProofTracker(pool())
        proving.observe_pool(shown, 0.0)
        proving.observe_wait("a", waiting(WaitCode.JOBS), 5.0)
        proving.observe_wait("a", None, 25.0)
        found = proving.result()
        assert found is not None
        assert (found.delay and found.delay.seconds) == expected


def test_waits_after_the_proof_cause_no_delay() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a"), 0.0)
    proving.observe_pool(seen("a", proven=True), 100.0)
    proving.observe_wait("a", waiting(WaitCode.JOBS), 110.0)
    proving.observe_wait("a", None, 900.0)
    assert proving.result() == ProofResult(threshold=2, proven_at=100.0, delay=None)


def test_without_a_rollout_there_is_nothing_to_be_seen() -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(replace(pool(), rollout=None), 0.0)
    assert proving.result() is None


@pytest.mark.parametrize("ended", [False, True])
def test_of_those_that_took_as_long_the_first_is_named(ended: bool) -> None:
    proving = ProofTracker(pool())
    proving.observe_pool(seen("a", "b"), 0.0)
    for name in ("b", "a"):
        proving.observe_wait(name, waiting(WaitCode.JOBS), 10.0)
    if ended:
        for name in ("b", "a"):
            proving.observe_wait(name, None, 40.0)
    found = proving.result()
    assert found is not None
    assert found.delay is not None
    assert found.delay.node == ("b" if ended else "a")


def test_the_largest_loss_is_the_earliest_of_its_size() -> None:
    service = CapacityTracker()
    for name in ("a", "b", "c"):
        service.observe(done(name), 0.0, first=True)
    service.update(0.0)
    assert service.loss == CapacityLoss(nodes=0, gpus=0, at=0.0)
    service.observe(in_flight_node(name="a"), 10.0)
    service.observe(replace(done("b"), ready=False), 10.0)
    service.update(10.0)
    service.observe(done("a"), 30.0)
    service.observe(in_flight_node(name="c"), 30.0)
    service.update(30.0)
    assert service.loss == CapacityLoss(nodes=2, gpus=16, at=10.0)
    assert service.gpu_seconds(40.0) == pytest.approx(8 * (20 + 30 + 10))
    assert service.gpu_seconds(20.0) == pytest.approx(8 * (10 + 10))


def test_nodes_unavailable_before_count_as_loss_but_lose_no_gpu_time() -> None:
    service = CapacityTracker()
    service.observe(failed("a"), 0.0, first=True)
    service.update(0.0)
    assert service.loss == CapacityLoss(nodes=1, gpus=8, at=0.0)
    assert service.gpu_seconds(100.0) == 0.0
    service.observe(done("a"), 50.0)
    service.observe(in_flight_node(name="a"), 60.0)
    assert service.gpu_seconds(100.0) == pytest.approx(8 * 40)


def test_a_lost_node_counts_once() -> None:
    service = CapacityTracker()
    service.node_lost("a", 4, 5.0)
    service.node_lost("a", 4, 6.0)
    service.observe(replace(in_flight_node(name="a"), gpus=4), 7.0)
    service.update(7.0)
    assert service.loss == CapacityLoss(nodes=1, gpus=4, at=7.0)
    assert service.gpu_seconds(9.0) == pytest.approx(4 * 4)
