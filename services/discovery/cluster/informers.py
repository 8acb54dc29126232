"""Everything that this role follows on the API server. What is made of it is not known here."""

from typing import Any, TypeVar

from libs.kube import gpu_operator
from libs.kube.client import Kube
from libs.kube.custom_resources import informers
from libs.kube.informer import Informer
from libs.kube.resources import LEASES, Resource
from libs.kube.views import Object
from libs.runtime.env import Env
from services.discovery.cluster import resources

V = TypeVar("V", bound=Object)


class Informers:
    """All of them."""

    def __init__(self, kube: Kube, *, env: Env) -> None:
        def of(resource: Resource[V], *, fields: str = "") -> Informer[V]:
            return Informer(kube, resource, env=env, fields=fields)

        self.nodes = of(resources.NODES)
        self.policies = informers(resources.POLICIES, kube, env=env)
        self.gpu_clusters = of(resources.GPU_CLUSTERS)
        self.leases = of(LEASES, fields=f"metadata.name={gpu_operator.LEASE}")

    def all(self) -> tuple[Informer[Any], ...]:
        """Each once."""
        return (self.nodes, *self.policies.values(), self.gpu_clusters, self.leases)

    def why_not_synced(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))
