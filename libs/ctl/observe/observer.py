"""Read a GPU Operator's fleet from Kubernetes, with the user's rights.

Only lists and gets. What the user may not read is named as a source that gives nothing.
"""

import asyncio
import time
from typing import Final, TypeVar

from libs.contracts.node import SKIP_LABEL, STATE_LABEL
from libs.ctl.cluster import NODE_EVENTS, Cluster, NodeEvent
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.observe import objects
from libs.ctl.observe.fleet import Found, Operator, OperatorFleet, OperatorPool, fleet_of
from libs.ctl.observe.objects import DisruptionBudget, Pod
from libs.ctl.observe.plan import StateEvent
from libs.fleet.pools import ROLLOUTS
from libs.fleet.status import Source
from libs.kube import views
from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import CONTROLLER_REVISIONS, LEASES, NODES, Resource

_LEASE_FIELDS: Final = f"metadata.name={GPU_OPERATOR_LEASE}"
_LIVE_SECONDS: Final = 60.0
"""An operator that was given more time to renew its Lease is given up after it."""
_EVENT_REASON: Final = "GPUDriverUpgrade"
V = TypeVar("V", bound=views.Object)


class Observer:
    """Reads the fleet, and keeps which lists were refused."""

    def __init__(self, cluster: Cluster, operator: Operator) -> None:
        self._cluster = cluster
        self._operator = operator
        self._problems: list[Source] = []
        self.nodes: tuple[views.Node, ...] = ()
        """Those with GPUs, once the fleet was read."""

    @property
    def sources(self) -> tuple[Source, ...]:
        name = f"Kubernetes ({self._cluster.address})"
        read = Source(name=name, gives="the GPU Operator's fleet", age=0.0)
        return (read, *self._problems)

    async def fleet(self) -> OperatorFleet:
        """Return the nodes with GPUs and what the operator wants of them."""
        nodes, driver_pods, validators = await asyncio.gather(
            self._list(NODES),
            self._list(objects.PODS, labels=objects.DRIVER_PODS),
            self._list(objects.PODS, labels=objects.VALIDATOR_PODS),
        )
        namespace = self._operator.namespace
        daemon_sets, revisions, policies, drivers = await asyncio.gather(
            self._list(objects.DAEMON_SETS, namespace=namespace),
            self._list(CONTROLLER_REVISIONS, namespace=namespace),
            self._list(objects.CLUSTER_POLICIES),
            self._list(objects.NVIDIA_DRIVERS),
        )
        owners = {each.uid for pod in driver_pods for each in pod.metadata.owner_references[:1]}
        chosen = [each for each in daemon_sets if _is_driver(each) or each.metadata.uid in owners]
        uids = {each.metadata.uid for each in chosen}
        with_pods = {pod.spec.node_name for pod in driver_pods}
        self.nodes = tuple(node for node in nodes if _has_gpus(node, with_pods))
        return fleet_of(
            Found(
                nodes=self.nodes,
                driver_pods=driver_pods,
                validator_pods=validators,
                daemon_sets=chosen,
                revisions=[
                    each
                    for each in revisions
                    if uids & {owner.uid for owner in each.metadata.owner_references}
                ],
                policies=policies,
                drivers=drivers,
            ),
            self._operator,
        )

    async def _list(
        self, resource: Resource[V], *, labels: str = "", fields: str = "", namespace: str = ""
    ) -> tuple[V, ...]:
        """Return the objects, or none where the user may not read them or the kind is unknown."""
        try:
            return await self._cluster.list(
                resource, labels=labels, fields=fields, namespace=namespace
            )
        except Failure as failure:
            if failure.code is ExitCode.NOT_REACHABLE or resource is NODES:
                raise
            if failure.code is not ExitCode.NOT_FOUND:
                gives, name = resource.plural, f"Kubernetes ({self._cluster.address})"
                self._problems.append(Source(name=name, gives=gives, problem=str(failure)))
            return ()

    async def pods(self, node: str = "") -> tuple[Pod, ...]:
        """Return the pods of a node, or of all."""
        return await self._list(objects.PODS, fields=f"spec.nodeName={node}" if node else "")

    async def budgets(self) -> tuple[DisruptionBudget, ...]:
        return await self._list(objects.BUDGETS)

    async def jobs(self, pool: OperatorPool | None, node: str) -> tuple[str, ...]:
        """Return the pods on a node that its policy waits for."""
        selector = "" if pool is None else pool.limits.job_selector
        if not selector:
            return ()
        found = await self._list(objects.PODS, labels=selector, fields=f"spec.nodeName={node}")
        return tuple(pod.metadata.key for pod in found if pod.is_active)

    async def state_events(self) -> tuple[StateEvent, ...]:
        """Return what the operator said about states of nodes in the last hour."""
        listed = await self._list(NODE_EVENTS)
        return tuple(
            StateEvent(node=each.involved_object.name, message=each.message, at=_at(each))
            for each in listed
            if each.reason == _EVENT_REASON and each.involved_object.kind == "Node"
        )


def _at(event: NodeEvent) -> float:
    return views.parse_time(event.at) if event.at else 0.0


def _is_driver(daemon_set: objects.DaemonSet) -> bool:
    labels = daemon_set.metadata.labels
    return labels.get("app") == "nvidia-driver-daemonset" or (
        labels.get("app.kubernetes.io/component") == "nvidia-driver"
    )


def _has_gpus(node: views.Node, with_pods: set[str]) -> bool:
    labels, name = node.metadata.labels, node.metadata.name
    kept = STATE_LABEL in labels or SKIP_LABEL in labels or name in with_pods
    return kept or labels.get("nvidia.com/gpu.present") == "true"


async def open_observer(cluster: Cluster) -> Observer | None:
    """Return an observer where a GPU Operator is, and Sluice's definitions are not."""
    try:
        if await cluster.serves_group(ROLLOUTS.group):
            return None
    except Failure:
        return None
    leases, policies, drivers = await asyncio.gather(
        _try(cluster, LEASES, fields=_LEASE_FIELDS),
        _try(cluster, objects.CLUSTER_POLICIES),
        _try(cluster, objects.PODS, labels=objects.DRIVER_PODS),
    )
    if not leases and not policies and not drivers:
        return None
    namespace = drivers[0].metadata.namespace if drivers else ""
    return Observer(cluster, operator_of(leases, namespace, now=time.time()))


async def _try(
    cluster: Cluster, resource: Resource[V], *, labels: str = "", fields: str = ""
) -> tuple[V, ...]:
    try:
        return await cluster.list(resource, labels=labels, fields=fields)
    except Failure:
        return ()


def operator_of(leases: tuple[views.Lease, ...], namespace: str, *, now: float) -> Operator:
    """Return the operator by its Lease, or by the namespace of its driver pods alone."""
    if not leases:
        return Operator(namespace=namespace)
    lease = max(leases, key=lambda each: each.spec.renew_time or "")
    spec = lease.spec
    renewed = views.parse_time(spec.renew_time) if spec.renew_time else None
    patience = max(_LIVE_SECONDS, 2.0 * (spec.lease_duration_seconds or 0))
    return Operator(
        namespace=lease.metadata.namespace,
        is_live=bool(spec.holder_identity) and renewed is not None and now - renewed < patience,
        holder=spec.holder_identity or "",
        renewed=renewed,
    )


async def find_operator(cluster: Cluster) -> Operator | None:
    """Return the GPU Operator that holds or held its Lease; fail if that cannot be read."""
    leases = await cluster.list(LEASES, fields=_LEASE_FIELDS)
    return operator_of(leases, "", now=time.time()) if leases else None
