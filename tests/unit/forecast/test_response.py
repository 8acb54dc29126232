import msgspec
import pytest

from libs.contracts.queries import CapacityPoint, PlanAnswer, PlanLimits, WaitReason
from libs.forecast.options import PlanOptions
from libs.forecast.world import NEVER
from libs.rollout.plan_time import PlanTime
from libs.testing.stage.worlds import WorldOverride
from tests.unit.forecast.builders import (
    answer_for,
    awaiting_jobs,
    cordoned_node,
    fixed_worlds,
    forecast_for,
    forecast_of,
    gpu_pod,
    old_node,
    planned,
    planned_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NEW, NOW, POOL


def test_every_field_of_the_answer_is_filled() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    nodes = [
        old_node("node-1", gpu_pod("train", job=True)),
        old_node("node-2", gpu_pod("web", budget="ml/web", bare=True)),
        old_node("node-3", gpu_pod("solo", bare=True)),
    ]
    answer = answer_for(
        pool_with_limits(**awaiting_jobs()), nodes, fixed_worlds(endless), finish_by=NOW + 3600
    )
    assert (answer.pool, answer.target) == (POOL, NEW)
    assert planned_node(answer, "node-3").lost == ("ml/solo (bare: nothing recreates it)",)
    assert planned_node(answer, "node-2").blocked_by == ("ml/web (keeps ml/web)",)
    reason = planned_node(answer, "node-1").wait
    assert isinstance(reason, WaitReason)
    assert (reason.code, reason.detail) == ("jobs", "waiting for jobs to finish: ml/train")
    assert (answer.makespan_p50, answer.needed_max_unavailable) == (None, None)
    assert answer.largest_loss == max(point.nodes for point in answer.capacity) == 3
    assert answer.gpu_hours_lost > 0
    assert msgspec.json.decode(msgspec.json.encode(answer), type=PlanAnswer) == answer


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
    failed = {f"node-{number}": plays for number, plays in enumerate(failed_plays)}
    found = forecast_of(*map(planned, failed), failed=failed)
    assert (found.upgraded, len(found.failing) + found.failing_by_chance) == (upgraded, failing)


def test_a_node_without_an_end_is_not_upgraded() -> None:
    found = forecast_of(planned("node-1", end=PlanTime()), planned("node-2"))
    assert (found.upgraded, found.failing) == (1, ())


def test_gpus_are_counted_only_where_those_of_all_nodes_are_known() -> None:
    nodes = [old_node("node-1"), old_node("node-2")]
    assert answer_for(pool_with_limits(), nodes).pool_gpus == 16
    coming_up = [old_node("node-1"), msgspec.structs.replace(old_node("node-2"), gpus=0)]
    answer = answer_for(pool_with_limits(), coming_up)
    assert (answer.pool_gpus, answer.pool_nodes) == (0, 2)


def test_limits_are_those_of_the_plan_beside_the_policys_and_what_is_down_is_told() -> None:
    options = PlanOptions(max_unavailable=3, max_parallel=2)
    nodes = [old_node("node-1"), cordoned_node("node-2")]
    answer = answer_for(pool_with_limits(), nodes, options=options)
    assert answer.limits == PlanLimits(max_unavailable="3", max_parallel=2)
    assert answer.policy_limits == PlanLimits(max_unavailable="100%")
    gpus = {node.node: node.gpus for node in answer.nodes}
    assert gpus == {"node-1": 8, "node-2": 0}
    assert answer.down == CapacityPoint(at=0.0, nodes=1, gpus=8)
    assert answer_for(pool_with_limits(), nodes[:1]).down is None


def test_no_limit_is_looked_for_where_people_keep_all_nodes_out() -> None:
    skipped = msgspec.structs.replace(cordoned_node("node-1"), skip=True)
    found = forecast_for(pool_with_limits(), [skipped], finish_by=NOW + 1)
    assert [node.node for node in found.answer.nodes] == ["node-1"]
    assert found.required_limits is None
