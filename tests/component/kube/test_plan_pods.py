"""The pods and disruption budgets of a plan, as servers list them."""

from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from services.scheduler.budgets import BUDGETS
from services.scheduler.plan_pods import with_pods
from services.scheduler.resources import PODS
from services.scheduler.snapshot.pod_view import no_claims
from tests.builders.objects import budget
from tests.component.kube.builders import pod
from tests.component.kube.sandbox import Kube, Sandbox

POOL = "pool"


async def test_only_pods_on_nodes_are_in_a_plan_with_their_budgets(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    namespace = sandbox.namespace
    for name, on_node in (("placed", node), ("pending", "")):
        body = pod(name, node=on_node, labels={"app": "x"})
        body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await kube.create(PODS, body)
    await kube.create(BUDGETS, budget("b", "x", minAvailable=1))
    view = NodeView(name=node, uid="u", revision="1", boot_id="b", pool=POOL)
    fleet = Fleet(pools={POOL: PoolView(key=POOL, uid="p")}, nodes={node: view})
    listed = await with_pods(fleet, POOL, kube=kube, namespace="gpu-operator", claim_of=no_claims)
    pods = listed.nodes[node].pods
    assert pods is not None
    (found,) = pods
    assert (found.name, found.gpu, found.budget) == ("placed", True, f"{namespace}/b")
    assert listed.budgets is not None
    assert listed.budgets[f"{namespace}/b"] == 0
    assert found.started is not None
