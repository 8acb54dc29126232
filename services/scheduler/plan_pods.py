"""List the pods and disruption budgets that a plan needs.

Most pods of a pool are in no cache: only nodes that are upgraded now or next are followed. Pods
come in pages, and only those that concern an upgrade are kept.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from services.scheduler import resources
from services.scheduler.budgets import BUDGETS, DisruptionBudget
from services.scheduler.placement import Displaced, Placement, displaced
from services.scheduler.resources import Node, Pod
from services.scheduler.snapshot.claims import ClaimOf
from services.scheduler.snapshot.pod_view import is_workload, workload_pod

PAGE = 500
MAX_PODS = 200_000
"""Pods kept for one plan: about 200 MB."""

V = TypeVar("V", bound=Object)


class TooManyPods(Exception):
    """The pods of a pool do not fit into the memory that a plan may use."""


async def with_pods(
    fleet: Fleet,
    pool: str,
    *,
    kube: Kube,
    namespace: str,
    claim_of: ClaimOf,
    absent_agents: Callable[[], frozenset[Writer]] = frozenset,
    nodes: Callable[[], Iterable[Node]] = tuple,
) -> Fleet:
    """Return the fleet with the pods of all nodes of a pool, and all disruption budgets.

    With all nodes of the cluster, each pod that would fit on no other one says why.
    """
    placement, needs = Placement(nodes()), defaultdict[str, list[Displaced]](list)
    absent = absent_agents()
    budgets = defaultdict[str, list[DisruptionBudget]](list)
    async for page in pages(kube, BUDGETS):
        for budget in page:
            budgets[budget.metadata.namespace].append(budget)
    upgrade = fleet.pools[pool].upgrade
    pods = {node.name: list[WorkloadPod]() for node in fleet.nodes.values() if _is_of(node, pool)}
    kept = 0
    async for page in pages(kube, resources.PODS, fields="spec.nodeName!="):
        for pod in page:
            on_node = pods.get(pod.spec.node_name)
            if is_workload(pod):
                placement.hold(pod)
            if on_node is None or not is_workload(pod):
                continue
            view = workload_pod(
                pod, upgrade, namespace=namespace, claim_of=claim_of, absent_agents=absent
            )
            if _is_concerned(view):
                kept += 1
                on_node.append(replace(view, budget=_budget_of(pod, budgets)))
                if view.exemption is EvictionExemption.NONE and (need := displaced(pod)):
                    needs[pod.spec.node_name].append(need)
        if kept > MAX_PODS:
            raise TooManyPods(f"pool {pool} has more than {MAX_PODS} pods to plan for")
    planned: dict[str, NodeView] = {}
    for name, found in pods.items():
        without = placement.without_place(name, needs[name])
        told = (replace(pod, no_place=without.get(pod.uid, "")) for pod in found)
        planned[name] = replace(fleet.nodes[name], pods=tuple(told))
    allowed = {
        each.metadata.key: each.status.disruptions_allowed
        for found in budgets.values()
        for each in found
    }
    return replace(fleet, nodes={**fleet.nodes, **planned}, budgets=allowed)


def _is_of(node: NodeView, pool: str) -> bool:
    record = node.current_record
    return pool in (node.pool, record.pool if record is not None else "")


def _is_concerned(pod: WorkloadPod) -> bool:
    """Return whether the pod has to leave before an upgrade, or is waited for."""
    holds = pod.gpu or pod.claims_unknown or pod.exemption is EvictionExemption.OPERAND
    return holds or pod.job or pod.drained


def _budget_of(pod: Pod, budgets: Mapping[str, Sequence[DisruptionBudget]]) -> str:
    """Return the strictest disruption budget of a pod; the API server refuses with several."""
    found = [each for each in budgets.get(pod.metadata.namespace, ()) if each.protects(pod)]
    found.sort(key=lambda each: (each.status.disruptions_allowed, each.metadata.name))
    return found[0].metadata.key if found else ""


async def pages(
    kube: Kube, resource: Resource[V], *, fields: str = ""
) -> AsyncIterator[tuple[V, ...]]:
    """Yield the objects of a list, a page at a time."""
    token = ""
    while True:
        page = await kube.list_page(resource, limit=PAGE, continue_token=token, fields=fields)
        yield page.items
        token = page.continue_token
        if not token:
            return
