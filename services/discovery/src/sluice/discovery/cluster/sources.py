"""Everything that this role follows on the API server, and how far that can be relied upon.

A kind that the server does not serve is known to have no objects, and is waited for in silence:
somebody may install its definition later. What is made of objects is not known here.
"""

import random as chance
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from sluice.discovery.cluster import things
from sluice.kube.cache import Cache
from sluice.kube.client import Kube
from sluice.kube.errors import KubeError, UnknownKind
from sluice.kube.resources import LEASES, Resource
from sluice.kube.views import Object
from sluice.runtime.backoff import jittered
from sluice.runtime.clock import Clock

LOOK: Final = 10.0
"""Seconds between two looks whether a kind is served by now."""
PROOF: Final = 5.0
"""Seconds that a proof may take."""

V = TypeVar("V", bound=Object)


class Source(Generic[V]):
    """One kind of objects, or the part of it that counts here."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        clock: Clock,
        random: chance.Random,
        fields: str = "",
    ) -> None:
        self.name = resource.plural
        self.cache = Cache(kube, resource, clock=clock, random=random, fields=fields)
        self._kube = kube
        self._resource = resource
        self._clock = clock
        self._random = random
        self._absent = False
        self._trouble = ""

    def __iter__(self) -> Iterator[V]:
        return iter(self.cache)

    async def run(self) -> None:
        """Follow until cancelled, from when the server serves this kind."""
        if self._resource.custom:
            while not await self._is_served():
                await self._clock.sleep(jittered(LOOK, self._random))
        self._absent = False
        await self.cache.run()

    @property
    def why_unknown(self) -> str:
        """Why it is not known what there is, in words; empty: it is."""
        if self.cache.is_synced or self._absent:
            return ""
        return f"{self.name}: {self.cache.why or self._trouble or 'not listed yet'}"

    async def prove(self, *, older_than: float) -> str:
        """Why it cannot be shown that this is not older; empty: it is not."""
        if self.cache.age <= older_than or await self.cache.prove(within=PROOF):
            return ""
        return f"{self.name}: {self.cache.why}"

    async def _is_served(self) -> bool:
        self._trouble = ""
        try:
            await self._kube.page(self._resource, limit=1, within=PROOF)
        except UnknownKind:
            self._absent = True
            return False
        except KubeError as error:
            self._trouble = f"{self.name}: {error}"
            return False
        return True


class Sources:
    """All of them."""

    def __init__(self, kube: Kube, *, clock: Clock, random: chance.Random) -> None:
        def of(resource: Resource[V], *, fields: str = "") -> Source[V]:
            return Source(kube, resource, clock=clock, random=random, fields=fields)

        self.nodes = of(things.NODES)
        self.policies: Mapping[str, Source[things.PolicyObject]] = {
            kind: of(resource) for kind, resource in things.POLICIES.items()
        }
        self.gpu_clusters = of(things.GPU_CLUSTERS)
        self.leases = of(LEASES, fields=f"metadata.name={things.FOREIGN_LEASE}")

    def all(self) -> tuple[Source[Any], ...]:
        """Each once."""
        return (self.nodes, *self.policies.values(), self.gpu_clusters, self.leases)

    def unknown(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))
