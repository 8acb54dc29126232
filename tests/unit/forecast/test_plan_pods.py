"""What a plan says of pods: which are lost, and which are kept."""

from msgspec.structs import replace

from libs.contracts.waits import WaitCode
from libs.forecast.rollout_plan import Percentiles
from libs.rollout.views.machine import PodEviction
from tests.unit.forecast.builders import (
    forecast_for,
    gpu_pod,
    node_forecast,
    old_node,
    pool_with_limits,
    remark_with,
)
from tests.unit.rollout.builders import NOW


def test_lost_pods_are_named_with_what_is_lost() -> None:
    pods = [
        gpu_pod("solo", bare=True),
        gpu_pod("cache", empty_dir=True),
        gpu_pod("rank-0", gang="ml/train"),
        gpu_pod("plain"),
    ]
    nodes = [old_node("node-1", *pods), old_node("node-2", gpu_pod("rank-1", gang="ml/train"))]
    made = forecast_for(pool_with_limits(), nodes)
    node = node_forecast(made, "node-1")
    assert node.evicted == ("ml/cache", "ml/plain", "ml/rank-0", "ml/solo")
    assert node.lost_pods == (
        "ml/cache (emptyDir: its files are deleted)",
        "ml/rank-0 (of gang ml/train, which stops as a whole: 1 more pods known)",
        "ml/solo (bare: nothing recreates it)",
    )
    assert node_forecast(made, "node-2").lost_pods
    remark_with(made, "5 pods will be evicted")
    remark_with(made, "4 pods will lose something")


def test_pods_that_are_not_watched_are_known_by_uid() -> None:
    seen = old_node("node-1", gpu_pod("a"))
    made = forecast_for(pool_with_limits(), [replace(seen, pods=None), old_node("node-2")])
    assert node_forecast(made, "node-1").evicted == ("the pod with uid uid-a",)
    remark_with(made, "The pods of 1 node are not watched")


def test_a_refusing_disruption_budget_is_named_with_its_consequence() -> None:
    kept = gpu_pod("web", budget="ml/web-budget")
    made = forecast_for(pool_with_limits(), [old_node("node-1", kept), old_node("node-2")])
    node = node_forecast(made, "node-1")
    assert node.blocked_by == ("ml/web-budget (keeps ml/web)",)
    assert node.end == Percentiles(None, None)
    assert node.failed_plays == 1
    assert node.wait is not None
    assert node.wait.code is WaitCode.FAILED
    remark_with(made, "1 disruption budget would refuse", "ml/web-budget")
    remark_with(made, "will probably fail", "node-1")


def test_a_current_refusal_is_quoted_from_the_api_server() -> None:
    leaving = PodEviction(uid="uid-a", since=NOW - 10, refused="Cannot evict pod: budget ml/pdb")
    made = forecast_for(
        pool_with_limits(), [old_node("node-1", gpu_pod("a"), evictions=(leaving,))]
    )
    assert made.nodes[0].blocked_by == ("ml/a: Cannot evict pod: budget ml/pdb",)
