"""What a plan says of nodes that jobs and disruption budgets hold up."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.queries import PlanAnswer
from libs.forecast.plan import plan
from libs.forecast.seeded_world import FleetProfile, job_left
from libs.forecast.world import TimeSpan
from libs.policy.kinds.strategy import OnEvictionTimeout, OnJobTimeout
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.stage.worlds import WorldOverride
from tests.unit.forecast.builders import (
    IDLE_LIFE,
    answer_for,
    awaiting_jobs,
    fixed_worlds,
    gpu_pod,
    idle_nodes,
    old_node,
    pool_with_limits,
    remark_with,
)
from tests.unit.forecast.test_play_midway import moments
from tests.unit.rollout.builders import (
    NOW,
    POOL,
    fleet,
    granted,
    in_flight_node,
)

TRAIN = gpu_pod("train", job=True, started=NOW - 600.0)
WORLDS = fixed_worlds(WorldOverride(pod="uid-train", remainder=TimeSpan(9_000.0)))
WEB = gpu_pod("web", budget="ml/web-budget")


def waiting(pool: PoolView, timeout: float | None) -> tuple[PoolView, list[NodeView]]:
    """Return a node in flight that waits for a job, and one at rest."""
    deadline = None if timeout is None else NOW + timeout
    node = in_flight_node(
        UpgradeState.WAIT_FOR_JOBS_REQUIRED, pods=(TRAIN,), record={"deadline": deadline}
    )
    return granted(pool, node), [node, *idle_nodes(2)[1:]]


def test_a_job_is_told_with_the_time_that_is_assumed_and_what_ends_it() -> None:
    pool, nodes = waiting(pool_with_limits(**awaiting_jobs()), None)
    planned = answer_for(pool, nodes, WORLDS)
    told = remark_with(planned, "ml/train, assumed")
    assert planned.held == (told,)
    assert told == (
        "node-1 waits for the job ml/train, assumed to go on for 2 h 2 min (p50), 1 d"
        " (p95): its owner can end that, and nothing else does"
        " (waitForCompletion.timeoutSeconds is 0)."
    )
    pool, nodes = waiting(pool_with_limits(**awaiting_jobs(1800)), 1200.0)
    remark_with(answer_for(pool, nodes, WORLDS), "or in 20 min pods are evicted (waitFor")
    pool = replace(pool, strategy=replace(pool.strategy, on_job_timeout=OnJobTimeout.DEFER))
    remark_with(answer_for(pool, nodes, WORLDS), "or in 20 min the node is given back, and")


def test_jobs_of_nodes_that_start_later_are_told_of_three_nodes() -> None:
    pool = pool_with_limits(**awaiting_jobs(1800))
    two = (TRAIN, gpu_pod("more", job=True))
    planned = answer_for(pool, [old_node("node-1", *two)], WORLDS)
    remark_with(planned, "node-1 will wait for the jobs ml/train, ml/more", "30 min after the node")
    nodes = [old_node(f"node-{n}", gpu_pod(f"train-{n}", job=True)) for n in range(1, 6)]
    remark_with(answer_for(pool, nodes, WORLDS), "2 more nodes wait for jobs likewise.")


def evicting(
    *, attempts: int, allowed: int | None = 0, budget: str = WEB.budget, **strategy: Any
) -> tuple[PlanAnswer, float]:
    """Return the plan of a node whose eviction is refused in this attempt, and what is left of it
    then. At the time of the plan the budget allows so many evictions; None: budgets are not known.
    """
    pool = pool_with_limits()
    pool = replace(pool, strategy=replace(pool.strategy, **strategy))
    start = replace(fleet(pool, old_node("node-1", WEB)), budgets={WEB.budget: 0})
    for seen, now in moments(start, seconds=2_000.0):
        view = seen.nodes["node-1"]
        refused = view.evictions and view.evictions[0].refused
        if refused and isinstance(view.record, NodeRecord) and view.record.attempt == attempts:
            assert view.record.deadline is not None
            pods = tuple(replace(pod, budget=budget) for pod in view.pods or ())
            nodes = {"node-1": replace(view, pods=pods)}
            budgets = None if allowed is None else {WEB.budget: allowed}
            seen = replace(seen, nodes=nodes, budgets=budgets)  # noqa: PLW2901
            planned = plan(seen, now, pool=POOL, plays=1, world_of=fixed_worlds())
            return planned.answer, view.record.deadline - now.at
    raise AssertionError("no eviction was refused")


def test_an_eviction_that_was_refused_is_requested_again_if_its_budget_allows_it_now() -> None:
    planned, left = evicting(attempts=1, allowed=1)
    (node,) = planned.nodes
    assert left > IDLE_LIFE + 20.0
    assert planned.makespan_p50 == pytest.approx(IDLE_LIFE, abs=20.0)
    assert (node.blocked_by, planned.failing) == ((), 0)
    assert node.evicted == ("ml/web",)
    assert not any("disruption budget" in line for line in planned.remarks)


@pytest.mark.parametrize(("allowed", "budget"), [(None, WEB.budget), (None, ""), (1, "")])
def test_an_eviction_goes_on_being_refused_where_no_budget_says_that_it_is_allowed(
    allowed: int | None, budget: str
) -> None:
    planned, left = evicting(attempts=2, allowed=allowed, budget=budget)
    assert planned.makespan_p50 == pytest.approx(left, abs=5.0)
    assert planned.nodes[0].blocked_by
    remark_with(planned, "node-1 waits for a disruption budget, and the plan assumes that it goes")


def test_what_happens_when_an_eviction_times_out_is_told_and_is_what_is_played() -> None:
    planned, left = evicting(attempts=1)
    assert left == pytest.approx(300.0, abs=1.0)
    told = remark_with(planned, "node-1 waits for a disruption budget")
    assert told == (
        "node-1 waits for a disruption budget, and the plan assumes that it goes on refusing: in"
        " 5 min (11:05:02 UTC) the eviction times out; the node then fails, and is tried again once"
        " unless the rollout is halted."
    )
    assert planned.makespan_p50 == pytest.approx(left + 300.0, abs=5.0)
    planned, left = evicting(attempts=2)
    remark_with(planned, "the node then fails for good.")
    assert planned.makespan_p50 == pytest.approx(left, abs=5.0)


def test_the_last_attempt_of_a_node_that_failed_is_told_as_such_before_it_begins() -> None:
    start = replace(fleet(pool_with_limits(), old_node("node-1", WEB)), budgets={WEB.budget: 0})
    told: list[str] = []
    for seen, now in moments(start, seconds=600.0):
        view = seen.nodes["node-1"]
        if view.state == UpgradeState.UPGRADE_REQUIRED and view.lease is None:
            held = replace(
                seen, nodes={"node-1": replace(view, pods=(WEB,))}, budgets=start.budgets
            )
            planned = plan(held, now, pool=POOL, plays=1, world_of=fixed_worlds()).answer
            told.append(remark_with(planned, "node-1 will wait for a disruption budget"))
    assert "fails, and is tried again once unless the rollout is halted." in told[0]
    assert "the node then fails for good." in told[-1]


def test_another_strategy_does_something_else_when_an_eviction_times_out() -> None:
    planned, _ = evicting(attempts=1, on_eviction_timeout=OnEvictionTimeout.RELEASE)
    remark_with(planned, "the node is then given back, and tried again 10 min later or more")


def test_a_wait_until_pods_are_deleted_by_force_is_told_too() -> None:
    planned, left = evicting(attempts=1, on_eviction_timeout=OnEvictionTimeout.FORCE_DELETE)
    remark_with(planned, "the eviction times out; the pods are then deleted by force.")
    assert planned.makespan_p50 == pytest.approx(left + IDLE_LIFE, abs=30.0)


def test_a_budget_of_a_node_that_starts_later_is_told() -> None:
    later = answer_for(pool_with_limits(), [old_node("node-1", WEB), old_node("node-2")])
    remark_with(later, "node-1 will wait for a disruption budget", "5 min after it begins the")


def test_what_is_left_of_a_job_is_infinite_after_any_known_one() -> None:
    assert job_left(FleetProfile().job, 0.0, 0.5) == pytest.approx(7200.0)
    assert job_left(FleetProfile().job, 1e12, 0.5) == float("inf")
