"""Plans with jobs, gangs and disruption budgets."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.contracts.queries import PlanAnswer
from libs.contracts.waits import WaitCode
from libs.forecast.plan import plan
from libs.forecast.world import NEVER, ProcessEnd, TimeSpan
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.builders import (
    EVICTED,
    IDLE_LIFE,
    WorldOf,
    answer_for,
    awaiting_jobs,
    fixed_worlds,
    gpu_pod,
    old_node,
    planned_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NOW, POOL, fleet, granted, in_flight_node, instant

HOUR = 3600.0
DAY = 24 * HOUR


def job(name: str, **changes: object) -> WorkloadPod:
    return gpu_pod(name, job=True, **changes)


def hours(**jobs: float) -> WorldOf:
    """Return worlds in which these jobs or gangs run so many hours in total."""
    overrides = [
        WorldOverride(pod=name, remainder=TimeSpan(total * HOUR)) for name, total in jobs.items()
    ]
    return fixed_worlds(*overrides)


class AgingWorld(SteadyWorld, frozen=True, kw_only=True):
    """A world in which each job runs two hours in total."""

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:
        return TimeSpan(max(0.0, 2 * HOUR - age))


def test_the_remainder_of_a_job_depends_on_its_age() -> None:
    nodes = [old_node("node-1", job("new")), old_node("node-2", job("old", started=NOW - HOUR))]
    planned = answer_for(
        pool_with_limits(**awaiting_jobs()), nodes, lambda _seed: AgingWorld(seed=0)
    )
    assert planned_node(planned, "node-1").end_p50 == pytest.approx(2 * HOUR + IDLE_LIFE, abs=10)
    assert planned_node(planned, "node-2").end_p50 == pytest.approx(HOUR + IDLE_LIFE, abs=10)


def test_the_pods_of_a_gang_end_together() -> None:
    nodes = [old_node(f"node-{n}", job(f"w{n}", gang="ml/ring")) for n in (1, 2, 3)]
    worlds = hours(**{"ml/ring": 3.0, "uid-w1": 1.0, "uid-w2": 2.0, "uid-w3": 4.0})
    planned = answer_for(pool_with_limits(**awaiting_jobs()), nodes, worlds)
    ends = [planned_node(planned, f"node-{n}").end_p50 for n in (1, 2, 3)]
    assert ends == pytest.approx([3 * HOUR + IDLE_LIFE] * 3, abs=10)


def test_the_pods_of_a_gang_stop_when_one_is_evicted() -> None:
    """Each node starts once the one before is done; only the first waits for the job."""
    nodes = [old_node(f"node-{n}", job(f"w{n}", gang="ml/ring")) for n in (1, 2)]
    endless = fixed_worlds(WorldOverride(pod="ml/ring", remainder=NEVER))
    pool = pool_with_limits(parallel=1, **awaiting_jobs(1800))
    planned = answer_for(pool, nodes, endless)
    assert planned.makespan_p50 == pytest.approx(1800 + 2 * IDLE_LIFE, abs=20)


def with_budgets(pool: PoolView, nodes: list[NodeView], **allowed: int) -> PlanAnswer:
    known = {name.replace("_", "/"): number for name, number in allowed.items()}
    views = replace(fleet(pool, *nodes), budgets=known)
    return plan(views, instant(), pool=POOL, world_of=fixed_worlds(), plays=1).answer


def test_a_budget_that_allows_one_eviction_serializes_nodes() -> None:
    """No node has room for the replacement: it starts when its own is open again."""
    nodes = [
        replace(old_node(f"node-{n}", gpu_pod(f"w{n}", budget="ml/web")), gpus=1) for n in (1, 2, 3)
    ]
    planned = with_budgets(pool_with_limits(), nodes, ml_web=1)
    assert not_none(planned.makespan_p50) > 3 * IDLE_LIFE
    assert all(not node.blocked_by for node in planned.nodes)
    free = with_budgets(pool_with_limits(), nodes, ml_web=3)
    assert free.makespan_p50 == pytest.approx(IDLE_LIFE + EVICTED, abs=1)


def test_a_replacement_with_room_elsewhere_restores_its_budget() -> None:
    nodes = [old_node(f"node-{n}", gpu_pod(f"w{n}", budget="ml/web")) for n in (1, 2, 3)]
    planned = with_budgets(pool_with_limits(unavailable=2), nodes, ml_web=1)
    assert not_none(planned.makespan_p50) < 3 * IDLE_LIFE


def test_an_exhausted_budget_blocks_its_node() -> None:
    nodes = [old_node("node-1", gpu_pod("web", budget="ml/web")), old_node("node-2")]
    planned = with_budgets(pool_with_limits(), nodes, ml_web=0)
    node = planned_node(planned, "node-1")
    assert node.blocked_by == ("ml/web (keeps ml/web)",)
    assert not_none(node.wait).code is WaitCode.FAILED
    assert planned_node(planned, "node-2").end_p50 is not None


def test_a_budget_that_keeps_no_node_from_its_end_blocks_nothing() -> None:
    leaving = gpu_pod("web", budget="ml/web", deleting=True)
    past = in_flight_node(
        UpgradeState.VALIDATION_REQUIRED, pods=(replace(leaving, deleting=False),)
    )
    for node in (old_node("node-1", leaving), past):
        planned = with_budgets(granted(pool_with_limits(), node), [node], ml_web=0)
        assert planned.makespan_p50 is not None
        assert planned.nodes[0].blocked_by == ()


def test_a_pod_without_a_budget_is_not_refused_where_budgets_are_known() -> None:
    refusing = fixed_worlds(WorldOverride(pod="uid-web", refusal=NEVER))
    views = replace(fleet(pool_with_limits(), old_node("node-1", gpu_pod("web"))), budgets={})
    planned = plan(views, instant(), pool=POOL, world_of=refusing, plays=1).answer
    assert planned.makespan_p50 == pytest.approx(IDLE_LIFE + EVICTED, abs=1)


def test_a_gpu_pod_whose_gpus_are_not_reported_is_evicted() -> None:
    node = old_node("node-1", gpu_pod("web"))
    assert node.usage is not None
    uses = tuple(replace(use, gpus=0) for use in node.usage.pods)
    planned = answer_for(pool_with_limits(), [replace(node, usage=replace(node.usage, pods=uses))])
    assert planned.nodes[0].evicted == ("ml/web",)


def test_a_driver_may_crash_for_a_week() -> None:
    worlds = fixed_worlds(
        WorldOverride(node="node-1", load=ProcessEnd(1.0, 1)),
        WorldOverride(pod="uid-train", remainder=TimeSpan(6 * DAY)),
    )
    nodes = [old_node("node-1"), old_node("node-2", job("train"))]
    planned = answer_for(pool_with_limits(**awaiting_jobs()), nodes, worlds)
    assert planned_node(planned, "node-2").end_p50 == pytest.approx(6 * DAY, rel=0.01)
