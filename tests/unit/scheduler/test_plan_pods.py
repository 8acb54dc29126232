"""The pods and disruption budgets that are listed for a plan."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.kube.client import Kube
from libs.kube.resources import PODS
from libs.policy.kinds.upgrade_policy import UpgradePolicy, WaitForCompletion
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim
from services.scheduler import plan_pods
from services.scheduler.budgets import BUDGETS
from services.scheduler.plan_pods import TooManyPods, with_pods
from services.scheduler.resources import Node
from services.scheduler.snapshot.pod_view import no_claims
from tests.builders import objects
from tests.builders.objects import seen
from tests.unit.kube.world import SimWorld, in_virtual_time

POOL = "pool"
NAMESPACE = "gpu-operator"


class World(SimWorld):
    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random)
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=sim.clock)

    async def close(self) -> None:
        await self.server.stop()

    async def start_pod(self, name: str, node: str, *, gpus: int = 0, **labels: str) -> None:
        body = objects.pod(name, node=node, gpus=gpus, meta={"labels": labels})
        await self.kube.create(PODS, body, namespace="default")

    async def create_budget(self, name: str, selector: dict[str, Any] | None, allowed: int) -> None:
        spec = {} if selector is None else {"selector": selector}
        body = {"metadata": {"name": name}, "spec": {**spec, "maxUnavailable": 1}}
        await self.kube.create(BUDGETS, body, namespace="default")
        path = BUDGETS.path(namespace="default", name=name, subresource="status")
        await self.kube.request(
            "PATCH",
            path,
            body={"status": {"disruptionsAllowed": allowed}},
            content_type="application/merge-patch+json",
        )

    async def planned(self, *nodes: str, gpus: int | None = None) -> Fleet:
        upgrade = UpgradePolicy(wait_for_completion=WaitForCompletion(pod_selector="kind=job"))
        pool = PoolView(key=POOL, uid="u", upgrade=upgrade)
        views = [NodeView(name=name, uid=name, revision="1", boot_id="b") for name in nodes]
        fleet = Fleet(
            pools={POOL: pool}, nodes={view.name: replace(view, pool=POOL) for view in views}
        )
        other = NodeView(name="other", uid="other", revision="1", boot_id="b", pool="another")
        fleet = replace(fleet, nodes={**fleet.nodes, "other": other})
        known = () if gpus is None else tuple(open_node(name, gpus) for name in nodes)
        return await with_pods(
            fleet,
            POOL,
            kube=self.kube,
            namespace=NAMESPACE,
            claim_of=no_claims,
            nodes=lambda: known,
        )


def open_node(name: str, gpus: int) -> Node:
    return seen(Node, objects.node(name, gpus=gpus, ready=True))


@in_virtual_time(World)
async def test_pods_that_concern_an_upgrade_are_listed_in_pages(world: World) -> None:
    plan_pods_page, plan_pods.PAGE = plan_pods.PAGE, 2
    try:
        for number in range(5):
            await world.start_pod(f"train-{number}", "a", gpus=1)
        await world.start_pod("job", "b", kind="job")
        await world.start_pod("web", "b")
        await world.start_pod("elsewhere", "cpu-node", gpus=1)
        await world.start_pod("of-another-pool", "other", gpus=1)
        fleet = await world.planned("a", "b", "c")
    finally:
        plan_pods.PAGE = plan_pods_page
    pods = {name: [pod.name for pod in node.pods or ()] for name, node in fleet.nodes.items()}
    assert pods["a"] == [f"train-{number}" for number in range(5)]
    assert pods["b"] == ["job"]
    assert fleet.nodes["c"].pods == ()
    assert fleet.nodes["other"].pods is None
    assert fleet.nodes["b"].pods is not None
    assert fleet.nodes["b"].pods[0].job


@in_virtual_time(World)
async def test_pods_name_their_strictest_budget(world: World) -> None:
    for name, app in (("x", "web"), ("y", "batch"), ("z", "none")):
        await world.start_pod(name, "a", gpus=1, app=app)
    await world.create_budget("loose", {"matchLabels": {"app": "web"}}, 3)
    in_web = {"key": "app", "operator": "In", "values": ["web"]}
    await world.create_budget("strict", {"matchExpressions": [in_web]}, 1)
    not_others = {"key": "app", "operator": "NotIn", "values": ["web", "none"]}
    await world.create_budget("exhausted", {"matchExpressions": [not_others]}, 0)
    await world.create_budget("selects-nothing", None, 0)
    fleet = await world.planned("a")
    budgets = {pod.name: pod.budget for pod in fleet.nodes["a"].pods or ()}
    assert budgets == {"x": "default/strict", "y": "default/exhausted", "z": ""}
    assert fleet.budgets == {
        "default/loose": 3,
        "default/strict": 1,
        "default/exhausted": 0,
        "default/selects-nothing": 0,
    }


@in_virtual_time(World)
async def test_the_pods_of_a_plan_are_limited(world: World) -> None:
    for number in range(3):
        await world.start_pod(f"train-{number}", "a", gpus=1)
    most, plan_pods.MAX_PODS = plan_pods.MAX_PODS, 2
    try:
        with pytest.raises(TooManyPods, match="pool pool has more than 2 pods"):
            await world.planned("a")
    finally:
        plan_pods.MAX_PODS = most


@in_virtual_time(World)
async def test_pods_that_fit_on_no_other_node_say_why(world: World) -> None:
    await world.start_pod("large", "a", gpus=8)
    await world.start_pod("small", "b", gpus=2)
    fleet = await world.planned("a", "b", gpus=8)
    places = {pod.name: pod.no_place for node in fleet.nodes.values() for pod in node.pods or ()}
    assert "at most 6 nvidia.com/gpu are free" in places["large"]
    assert "at most 0 nvidia.com/gpu are free" in places["small"]
    fleet = await world.planned("a", "b", "c", gpus=8)
    assert not any(pod.no_place for node in fleet.nodes.values() for pod in node.pods or ())
