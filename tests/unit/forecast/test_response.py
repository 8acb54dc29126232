import msgspec
import pytest

from libs.contracts.queries import CapacityPoint, PlanAnswer, PlanLimits, WaitReason
from libs.forecast.options import PlanOptions
from libs.forecast.rollout_plan import NodeForecast, Percentiles, RolloutPlan, plan_response
from libs.forecast.world import NEVER
from libs.testing.stage.worlds import WorldOverride
from tests.unit.forecast.builders import (
    awaiting_jobs,
    cordoned_node,
    fixed_worlds,
    forecast_for,
    gpu_pod,
    old_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NEW, NOW, POOL


def test_every_field_of_the_response_is_filled() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    nodes = [
        old_node("node-1", gpu_pod("train", job=True)),
        old_node("node-2", gpu_pod("web", budget="ml/web", bare=True)),
        old_node("node-3", gpu_pod("solo", bare=True)),
    ]
    planned = forecast_for(
        pool_with_limits(**awaiting_jobs()), nodes, fixed_worlds(endless), finish_by=NOW + 3600
    )
    answer = plan_response(planned)
    assert (answer.pool, answer.target) == (POOL, NEW)
    assert [node.node for node in answer.nodes] == [node.node for node in planned.nodes]
    by_name = {node.node: node for node in answer.nodes}
    third = next(node for node in planned.nodes if node.node == "node-3")
    assert by_name["node-3"].end_p50 == third.end.p50
    assert by_name["node-3"].start_p95 == third.start.p95
    assert by_name["node-3"].lost == third.lost_pods != ()
    assert by_name["node-2"].blocked_by == ("ml/web (keeps ml/web)",)
    reason = by_name["node-1"].wait
    assert isinstance(reason, WaitReason)
    assert (reason.code, reason.detail) == ("jobs", "waiting for jobs to finish: ml/train")
    assert answer.makespan_p50 is None
    assert answer.largest_loss == planned.loss.nodes == 3
    assert answer.gpu_hours_lost == planned.gpu_hours_lost > 0
    assert answer.needed_max_unavailable is None
    assert answer.remarks == planned.remarks


def test_a_response_round_trips() -> None:
    answer = plan_response(
        forecast_for(pool_with_limits(), [old_node("node-1")], finish_by=NOW + 3600)
    )
    assert answer.needed_max_unavailable == 1
    assert msgspec.json.decode(msgspec.json.encode(answer), type=PlanAnswer) == answer


SURE = Percentiles(1.0, 2.0)


@pytest.mark.parametrize(
    ("failed_plays", "upgraded", "failing"),
    [
        ((0, 0, 0, 0), 4, 0),
        ((15, 0, 0, 0), 3, 1),
        ((20, 10, 10, 0), 2, 2),  # one of its own, and about one of two others
        ((0, 0, 0, 9), 4, 0),  # less than one of them
    ],
)
def test_upgraded_and_failing_nodes_are_never_the_same(
    failed_plays: tuple[int, ...], upgraded: int, failing: int
) -> None:
    nodes = tuple(
        NodeForecast(node=f"node-{number}", start=SURE, end=SURE, failed_plays=failed)
        for number, failed in enumerate(failed_plays)
    )
    answer = plan_response(RolloutPlan(pool=POOL, target=NEW, plays=20, nodes=nodes))
    assert (answer.upgraded, answer.failing) == (upgraded, failing)


def test_a_node_without_an_end_is_not_upgraded() -> None:
    nodes = (NodeForecast(node="node-1", start=SURE), NodeForecast(node="node-2", end=SURE))
    answer = plan_response(RolloutPlan(pool=POOL, target=NEW, plays=20, nodes=nodes))
    assert (answer.upgraded, answer.failing) == (1, 0)


def test_gpus_are_counted_only_where_those_of_all_nodes_are_known() -> None:
    nodes = [old_node("node-1"), old_node("node-2")]
    assert plan_response(forecast_for(pool_with_limits(), nodes)).pool_gpus == 16
    coming_up = [old_node("node-1"), msgspec.structs.replace(old_node("node-2"), gpus=0)]
    answer = plan_response(forecast_for(pool_with_limits(), coming_up))
    assert (answer.pool_gpus, answer.pool_nodes) == (0, 2)


def test_limits_are_those_of_the_plan_beside_the_policys_and_what_is_down_is_told() -> None:
    options = PlanOptions(max_unavailable=3, max_parallel=2)
    nodes = [old_node("node-1"), cordoned_node("node-2")]
    answer = plan_response(forecast_for(pool_with_limits(), nodes, options=options))
    assert answer.limits == PlanLimits(max_unavailable="3", max_parallel=2)
    assert answer.policy_limits == PlanLimits(max_unavailable="100%")
    gpus = {node.node: node.gpus for node in answer.nodes}
    assert gpus == {"node-1": 8, "node-2": 0}
    assert answer.down == CapacityPoint(at=0.0, nodes=1, gpus=8)
    assert plan_response(forecast_for(pool_with_limits(), nodes[:1])).down is None


def test_no_limit_is_looked_for_where_people_keep_all_nodes_out() -> None:
    skipped = msgspec.structs.replace(cordoned_node("node-1"), skip=True)
    planned = forecast_for(pool_with_limits(), [skipped], finish_by=NOW + 1)
    assert [node.node for node in planned.nodes] == ["node-1"]
    assert planned.required_limits is None
