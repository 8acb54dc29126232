"""The frame of the cluster roles that export the fleet's metrics: what labels them.

These roles write no objects, so any number of replicas may run, and none leads.
"""

from typing import Any, Generic, TypeVar

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.informer import InformerSet, run_informers
from libs.kube.requests import Transport
from libs.kube.resources import CustomObject, Resource, custom_resources
from libs.kube.views import Object
from libs.policy.kinds import NODE_SELECTING_KINDS
from libs.policy.pool_index import PoolIndex, nodes_without_recorded_pool
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings


class FleetSettings(ClusterSettings, frozen=True, kw_only=True):
    namespace: str = ""
    pod_name: str = ""
    """These two are set for every cluster role; those of this frame do not use them."""


N = TypeVar("N", bound=Object)
"""A Node that also is a `NodeWithPool`."""


class FollowedFleet(Generic[N]):
    """The Nodes with GPUs, and the pool of each, which the policies that select them name."""

    def __init__(
        self, kube: Transport, nodes: Resource[N], *, manager: str, labels: str, env: Env
    ) -> None:
        client = Kube(kube, manager=manager, clock=env.clock)
        self.nodes = Cache(client, nodes, env=env, labels=labels)
        self._policies = InformerSet(client, env=env)
        by_kind = self._policies.add_each(custom_resources(NODE_SELECTING_KINDS, CustomObject))
        pools: Any = self.nodes
        self.pool_index = PoolIndex(
            policies=by_kind, nodes=lambda: nodes_without_recorded_pool(pools)
        )
        for cache in (self.nodes, *(informer.cache for informer in by_kind.values())):
            cache.on_change(self.pool_index.invalidate)

    def follow(self, service: Service) -> None:
        """Follow all until the service stops.

        It is ready once the Nodes are known. Policies may be missing: without their definitions
        no Node belongs to a pool, and its metrics are of use all the same.
        """
        service.run_forever("follow nodes", self.nodes.run())
        run_informers(self._policies.all(), service)
        service.ready_when(
            "nodes",
            lambda: (
                None
                if self.nodes.is_synced
                else self.nodes.problem or "the Nodes are not listed yet"
            ),
        )
