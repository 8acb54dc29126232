import pytest
from msgspec.structs import replace

from libs.forecast.play_result import CapacityLoss, CapacityTracker
from tests.unit.rollout.builders import done, failed, in_flight_node


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
