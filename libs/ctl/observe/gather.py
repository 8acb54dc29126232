"""Answer the verbs about a GPU Operator's fleet: read it, then explain it."""

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from libs.contracts.queries import PlanQuery
from libs.ctl.cluster import Cluster
from libs.ctl.collect.node import event_fact
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.observe.answers import (
    ObservedNode,
    ObservedStatus,
    node_of,
    pool_with,
    status_of,
)
from libs.ctl.observe.fleet import OperatorFleet, OperatorPool
from libs.ctl.observe.objects import Pod
from libs.ctl.observe.observer import Observer, open_observer
from libs.ctl.observe.placement import hosts_of, without_place
from libs.ctl.observe.plan import ObservedPlan, plan_of, with_limits, with_policy
from libs.ctl.observe.pods import Evicted, evicted_pods, uses_gpu

if TYPE_CHECKING:
    from libs.ctl.policy_file import PolicyFile

_LAST_EVENTS: Final = 10
_IN_PLAN: Final = frozenset(
    {
        "upgradePolicy.podDeletion.force",
        "upgradePolicy.podDeletion.deleteEmptyDir",
        "upgradePolicy.drain.enable",
    }
)
"""The fields of a driver that count in a plan, besides those of the query."""


async def observe_status(cluster: Cluster, name: str) -> ObservedStatus | ObservedNode | None:
    """Return the fleet, the pool or the node of this name; None where there is no operator."""
    observer = await open_observer(cluster)
    if observer is None:
        return None
    fleet = await observer.fleet()
    pools = [pool.name for pool in fleet.pools]
    if not name or name in pools:
        return status_of(fleet, observer.sources, pool=name, now=time.time())
    if any(node.name == name for node in fleet.nodes):
        return await _node(cluster, observer, fleet, name)
    known = ", ".join(pools) or "none"
    raise Failure(
        ExitCode.NOT_FOUND, f"there is neither a pool nor a Node with GPUs {name!r}; pools: {known}"
    )


async def observe_why(cluster: Cluster, name: str) -> ObservedNode | None:
    """Return why a node is where it is; None where there is no operator, or no GPU on the node."""
    observer = await open_observer(cluster)
    if observer is None:
        return None
    fleet = await observer.fleet()
    if not any(node.name == name for node in fleet.nodes):
        return None
    return await _node(cluster, observer, fleet, name)


async def _node(
    cluster: Cluster, observer: Observer, fleet: OperatorFleet, name: str
) -> ObservedNode:
    """Return all that is known of one node. Its Events are left out where they cannot be read."""
    (node,) = (each for each in fleet.nodes if each.name == name)
    pool = pool_with(fleet, node)
    evicted: tuple[Evicted, ...] = ()
    if pool is not None:
        evicted = evicted_pods(await observer.pods(name), pool.limits, await observer.budgets())
    jobs = await observer.jobs(pool, name)
    try:
        events = await cluster.node_events(name)
    except Failure:
        events = ()
    return node_of(
        fleet,
        node,
        evicted=evicted,
        jobs=jobs,
        events=tuple(map(event_fact, events[-_LAST_EVENTS:])),
        sources=observer.sources,
        now=time.time(),
    )


async def observe_plan(
    cluster: Cluster, query: PlanQuery, file: "PolicyFile | None"
) -> ObservedPlan | None:
    """Return the next upgrade of a pool, as the query or the file changes it; None where there is
    no operator.
    """
    observer = await open_observer(cluster)
    if observer is None:
        return None
    fleet = await observer.fleet()
    planned = None
    if file is None:
        chosen = _only_pool(fleet, query.pool)
    else:
        from libs.ctl.collect.policy_file import gather_change

        change = await gather_change(
            cluster, file, observer.nodes, pool=query.pool, name_of=lambda policy: policy.name
        )
        query = change.query(query)
        planned = change.planned_file(query, more=_IN_PLAN)
        chosen = with_policy(
            _only_pool(fleet, change.policy.name),
            change.after.upgrade,
            has_pod_deletion=change.has_pod_deletion,
        )
    chosen = with_limits(
        chosen, max_unavailable=query.max_unavailable, max_parallel=query.max_parallel
    )
    on_node = defaultdict[str, list[Pod]](list)
    for pod in await observer.pods():
        if uses_gpu(pod):
            on_node[pod.spec.node_name].append(pod)
    budgets = await observer.budgets()
    evicted = {name: evicted_pods(pods, chosen.limits, budgets) for name, pods in on_node.items()}
    hosts = hosts_of(observer.nodes, (pod for pods in on_node.values() for pod in pods))
    plan = plan_of(
        chosen,
        evicted,
        await observer.state_events(),
        version=query.driver_version,
        changed=bool(query.driver),
        without_place={name: without_place(name, pods, hosts) for name, pods in on_node.items()},
    )
    return replace(plan, sources=observer.sources, file=planned)


def _only_pool(fleet: OperatorFleet, name: str) -> OperatorPool:
    """Return the pool of this name, or the only one; fail with their names if that is not clear."""
    pools = {pool.name: pool for pool in fleet.pools}
    known = ", ".join(sorted(pools)) or "none"
    if name and name not in pools:
        raise Failure(ExitCode.NOT_FOUND, f"there is no pool {name!r}; pools: {known}")
    if not pools:
        raise Failure(ExitCode.NOT_FOUND, "there is neither a ClusterPolicy nor an NVIDIADriver")
    if not name and len(pools) > 1:
        raise Failure(ExitCode.WRONG_ARGUMENTS, f"there are several pools; name one: {known}")
    return pools[name] if name else next(iter(pools.values()))
