"""The informers of this role."""

from typing import Any, TypeVar

from libs.kube.client import Kube
from libs.kube.informer import Informer, informers
from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES, Resource
from libs.kube.views import Object
from libs.runtime.env import Env
from services.discovery.cluster import resources

V = TypeVar("V", bound=Object)


class Informers:
    def __init__(self, kube: Kube, *, env: Env) -> None:
        def of(resource: Resource[V], *, fields: str = "") -> Informer[V]:
            return Informer(kube, resource, env=env, fields=fields)

        self.nodes = of(resources.NODES)
        self.policies = informers(resources.POLICIES, kube, env=env)
        self.gpu_clusters = of(resources.GPU_CLUSTERS)
        self.leases = of(LEASES, fields=f"metadata.name={GPU_OPERATOR_LEASE}")

    def all(self) -> tuple[Informer[Any], ...]:
        return (self.nodes, *self.policies.values(), self.gpu_clusters, self.leases)

    def why_not_synced(self) -> str:
        """Return why some informer has no first list yet; empty once all have."""
        return "; ".join(why for informer in self.all() if (why := informer.why_unknown))
