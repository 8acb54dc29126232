"""Everything that this role follows on the API server. What is made of it is not known here."""

import random as chance
from typing import Any, TypeVar

from libs.kube import foreign
from libs.kube.client import Kube
from libs.kube.customs import followed
from libs.kube.resources import LEASES, Resource
from libs.kube.source import Source
from libs.kube.views import Object
from libs.runtime.clock import Clock
from services.discovery.cluster import things

V = TypeVar("V", bound=Object)


class Sources:
    """All of them."""

    def __init__(self, kube: Kube, *, clock: Clock, random: chance.Random) -> None:
        def of(resource: Resource[V], *, fields: str = "") -> Source[V]:
            return Source(kube, resource, clock=clock, random=random, fields=fields)

        self.nodes = of(things.NODES)
        self.policies = followed(things.POLICIES, kube, clock=clock, random=random)
        self.gpu_clusters = of(things.GPU_CLUSTERS)
        self.leases = of(LEASES, fields=f"metadata.name={foreign.LEASE}")

    def all(self) -> tuple[Source[Any], ...]:
        """Each once."""
        return (self.nodes, *self.policies.values(), self.gpu_clusters, self.leases)

    def unknown(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))
