"""Small fleets to plan, in worlds whose durations are known."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from libs.contracts.queries import PlanAnswer, PlannedNode, PlanStop
from libs.contracts.reports import PodUse, Usage
from libs.contracts.waits import WaitCode
from libs.forecast.forecast import Forecast
from libs.forecast.plan import plan
from libs.forecast.world import WorldModel
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import PodDeletion, WaitForCompletion
from libs.rollout.plan_time import PlanTime
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.rollout.builders import NEW, OLD, POOL, done, fleet, instant, pool

IDLE_LIFE = 37.06
"""Seconds from the lease of an idle node to its release in the steady world.

1.18 until the devices are closed and the label moves (four slots, a poke, a second to close),
0.3 until the kubelet acts on it, 1 until the old pod is gone, 3.12 until the modules are out,
0.1 until the driver starts, 21 until it is ready, 0.18 until the validator begins,
10 of validation, 0.12 until the plugin resumes in its course, 0.06 until the node is uncordoned.
"""

EVICTED = 1.02
"""Additional seconds for the eviction of a pod."""

GRANTED = 0.04
"""From the end of one node to the start of the next: the Rollout, and the first write."""


WorldOf = Callable[[int], WorldModel]


def fixed_worlds(*overrides: WorldOverride, **usual: Any) -> WorldOf:
    """Return one world for all plays."""
    world = SteadyWorld(overrides=overrides, **usual)
    return lambda _seed: world


def varied_worlds(*overrides: WorldOverride) -> WorldOf:
    """Return worlds whose durations differ by chance."""
    return lambda seed: SteadyWorld(seed=seed, jitter=1.0, overrides=overrides)


def pool_with_limits(
    *, parallel: int = 0, unavailable: int | str = "100%", threshold: str = "100%", **changes: Any
) -> PoolView:
    """Return a pool that moves to NEW within limits; `changes` are of its upgrade policy."""
    result = pool(
        upgrade={
            "max_parallel_upgrades": parallel,
            "max_unavailable": unavailable,
            "pod_deletion": PodDeletion(force=True, delete_empty_dir=True),
            **changes,
        }
    )
    return replace(result, strategy=StrategySpec(failure_threshold=threshold))


def awaiting_jobs(seconds: int = 0) -> dict[str, Any]:
    return {"wait_for_completion": WaitForCompletion(pod_selector="job", timeout_seconds=seconds)}


def gpu_pod(name: str, **changes: Any) -> WorkloadPod:
    return replace(WorkloadPod(namespace="ml", name=name, uid=f"uid-{name}", gpu=True), **changes)


def old_node(name: str, *pods: WorkloadPod, **changes: Any) -> NodeView:
    used = tuple(PodUse(pod_uid=pod.uid, gpus=1, processes=1) for pod in pods if pod.gpu)
    return replace(done(name, OLD, pods=pods, usage=Usage(pods=used)), **changes)


def cordoned_node(name: str) -> NodeView:
    return old_node(name, cordoned=True, cordon_taint=True)


def idle_nodes(count: int) -> list[NodeView]:
    return [old_node(f"node-{number}") for number in range(1, count + 1)]


def answer_for(
    pool: PoolView, nodes: Iterable[NodeView], world_of: WorldOf | None = None, **options: Any
) -> PlanAnswer:
    return forecast_for(pool, nodes, world_of, **options).answer


def forecast_for(
    pool: PoolView, nodes: Iterable[NodeView], world_of: WorldOf | None = None, **options: Any
) -> Forecast:
    arguments: dict[str, Any] = {"plays": 1, **options}
    return plan(
        fleet(pool, *nodes),
        instant(),
        pool=POOL,
        world_of=world_of or fixed_worlds(),
        **arguments,
    )


SURE = PlanTime(1.0, 2.0)


def planned(name: str, start: PlanTime = SURE, end: PlanTime = SURE, **more: Any) -> PlannedNode:
    """Return an invented node of a plan."""
    (start_p50, start_p95), (end_p50, end_p95) = start, end
    return PlannedNode(
        node=name,
        start_p50=start_p50,
        start_p95=start_p95,
        end_p50=end_p50,
        end_p95=end_p95,
        **more,
    )


def forecast_of(*nodes: PlannedNode, stops: tuple[PlanStop, ...] = (), **more: Any) -> Forecast:
    """Return an invented forecast, of 20 plays by default."""
    answer = PlanAnswer(pool=POOL, target=NEW, nodes=nodes, stops=stops)
    fields: dict[str, Any] = {"plays": 20, **more}
    return Forecast(answer=answer, **fields)


def planned_node(planned: PlanAnswer, name: str) -> PlannedNode:
    return next(node for node in planned.nodes if node.node == name)


def end_of(node: PlannedNode) -> PlanTime:
    return PlanTime(node.end_p50, node.end_p95)


def makespan_of(planned: PlanAnswer) -> PlanTime:
    return PlanTime(planned.makespan_p50, planned.makespan_p95)


def waiting_nodes(planned: PlanAnswer, code: WaitCode, detail: str = "") -> list[str]:
    """Return the nodes that do not start because of this, in whose words this is."""
    return sorted(
        node.node
        for node in planned.nodes
        if node.start_p50 is node.start_p95 is None
        and node.wait is not None
        and node.wait.code is code
        and detail in node.wait.detail
    )


def remark_with(planned: PlanAnswer, *words: str) -> str:
    found = [remark for remark in planned.remarks if all(word in remark for word in words)]
    assert len(found) == 1, planned.remarks
    return found[0]
