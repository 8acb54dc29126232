import msgspec

from libs.contracts.queries import PlanAnswer, WaitReason
from libs.forecast.rollout_plan import plan_response
from libs.forecast.world import NEVER
from libs.testing.stage.worlds import WorldOverride
from tests.unit.forecast.builders import (
    awaiting_jobs,
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
