"""Plans with other limits or targets, and the limits required to finish in time."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.waits import WaitCode
from libs.forecast.options import PlanOptions
from libs.forecast.world import NEVER
from libs.rollout.plan_time import PlanTime
from libs.rollout.views.pool import Build
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import WorldOverride
from tests.unit.forecast.builders import (
    answer_for,
    awaiting_jobs,
    fixed_worlds,
    gpu_pod,
    idle_nodes,
    makespan_of,
    old_node,
    planned_node,
    pool_with_limits,
    remark_with,
    varied_worlds,
    waiting_nodes,
)
from tests.unit.rollout.builders import NEW, NOW, VARIANT, done, granted, in_flight_node, required


def test_the_plan_follows_a_given_budget() -> None:
    serial = answer_for(pool_with_limits(parallel=1), idle_nodes(4))
    parallel = answer_for(
        pool_with_limits(parallel=1),
        idle_nodes(4),
        options=PlanOptions(max_parallel=0, max_unavailable=2),
    )
    assert parallel.largest_loss == 2
    assert parallel.makespan_p50 == pytest.approx(not_none(serial.makespan_p50) / 2, rel=0.05)


def test_the_plan_follows_a_given_target() -> None:
    nodes = [done("node-1"), done("node-2")]
    assert not answer_for(pool_with_limits(), nodes).nodes
    build = Build(label="label-next", install_digest="install-next")
    planned = answer_for(
        pool_with_limits(), nodes, options=PlanOptions(target="next", builds={VARIANT: build})
    )
    assert planned.target == "next"
    assert all(node.end_p50 for node in planned.nodes)
    unknown = answer_for(pool_with_limits(), nodes, options=PlanOptions(target="next"))
    assert makespan_of(unknown) == PlanTime(None, None)
    assert waiting_nodes(unknown, WaitCode.TARGET_MISSING) == ["node-1", "node-2"]


def test_that_nobody_looked_for_a_driver_that_no_node_has_is_told() -> None:
    build = Build(label="label-next", install_digest="install-next")
    other = PlanOptions(target="next", version="999.1", builds={VARIANT: build})
    nodes = [done("node-1"), done("node-2")]
    told = "No node has 999.1: whether that driver exists was not checked."
    assert told in answer_for(pool_with_limits(), nodes, options=other).remarks
    loaded = replace(nodes[0], loaded=LoadedDriver(version="999.1"))
    for planned in (
        answer_for(pool_with_limits(), [loaded, nodes[1]], options=other),
        answer_for(pool_with_limits(), [old_node("node-1")]),
        answer_for(replace(pool_with_limits(), version="999.1"), nodes, options=other),
    ):
        assert not any("was not checked" in line for line in planned.remarks)


def test_a_node_whose_driver_is_being_replaced_finishes_before_it_gets_the_given_target() -> None:
    started = in_flight_node("pod-restart-required", "node-1")
    pool = granted(pool_with_limits(), started)
    nodes = [started, old_node("node-2", pods=())]
    build = Build(label="label-next", install_digest="install-next")
    options = PlanOptions(target="next", builds={VARIANT: build})
    first = planned_node(answer_for(pool, nodes), "node-1").end_p50
    planned = answer_for(pool, nodes, options=options)
    both, other = (planned_node(planned, node.name).end_p50 for node in nodes)
    assert both == pytest.approx(not_none(first) + not_none(other), rel=0.05)
    remark_with(planned, "The rollout of ", "under way", "the others skip it")


@pytest.mark.parametrize("seconds", [30, 50, 80, 120, 200, 400])
def test_the_required_limit_is_the_smallest_that_suffices(seconds: int) -> None:
    nodes = [
        old_node(f"node-{number}", *[gpu_pod(f"w{number}")] * (number % 2)) for number in range(6)
    ]
    smallest = None
    for number in range(7):
        candidate = answer_for(
            pool_with_limits(unavailable=number), nodes, varied_worlds(), plays=2
        )
        if candidate.makespan_p95 is not None and candidate.makespan_p95 <= seconds:
            smallest = number
            break
    found = answer_for(
        pool_with_limits(unavailable=1), nodes, varied_worlds(), plays=2, finish_by=NOW + seconds
    )
    assert found.needed_max_unavailable == smallest
    remark_with(found, "Even with all" if smallest is None else f"With maxUnavailable {smallest} ")


def test_a_parallel_limit_that_is_too_small_is_reported() -> None:
    planned = answer_for(pool_with_limits(parallel=1), idle_nodes(4), finish_by=NOW + 90)
    assert planned.needed_max_unavailable == 2
    remark_with(planned, "Only if maxParallelUpgrades (now 1) is 0, or at least 2 too")
    unasked = answer_for(pool_with_limits(parallel=1), idle_nodes(4))
    assert unasked.needed_max_unavailable is None


def test_no_limit_suffices_with_an_endless_job() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    nodes = [old_node("node-1", gpu_pod("train", job=True))]
    planned = answer_for(
        pool_with_limits(**awaiting_jobs()), nodes, fixed_worlds(endless), finish_by=NOW + 9000
    )
    assert planned.needed_max_unavailable is None
    remark_with(planned, "is unknown, whatever")


def test_a_time_in_the_past_is_reported() -> None:
    planned = answer_for(pool_with_limits(), idle_nodes(1), finish_by=NOW)
    remark_with(planned, "That time has passed.")


def test_a_node_that_needs_no_start_does_not_raise_the_required_limit() -> None:
    planned = answer_for(
        pool_with_limits(), [required("node-1", NEW), old_node("node-2")], finish_by=NOW + 3600
    )
    assert planned_node(planned, "node-1").start_p50 is None
    assert planned_node(planned, "node-1").end_p50 is not None
    assert planned.needed_max_unavailable == 1
