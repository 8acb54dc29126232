"""Everything that this role follows on the API server, and how far that can be relied upon.

A kind that the server does not serve is known to have no objects, and is waited for in silence:
somebody may install its definition later. What is made of objects is not known here.
"""

import asyncio
import random as chance
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from sluice.driver.cluster import things
from sluice.kube.cache import Cache
from sluice.kube.client import Kube
from sluice.kube.errors import KubeError, UnknownKind
from sluice.kube.resources import LEASES, Resource
from sluice.kube.views import Lease, Object
from sluice.runtime.backoff import jittered
from sluice.runtime.clock import Clock

LOOK: Final = 10.0
"""Seconds between two looks whether a kind is served by now."""
OLD: Final = 10.0
"""What was proved so long ago is asked to prove itself before anything is taken away."""
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
        namespace: str = "",
        fields: str = "",
    ) -> None:
        self.name = resource.plural
        self.cache = Cache(
            kube, resource, clock=clock, random=random, namespace=namespace, fields=fields
        )
        self._kube = kube
        self._resource = resource
        self._clock = clock
        self._random = random
        self._follows = False
        self._absent_at: float | None = None
        self._trouble = ""

    def __iter__(self) -> Iterator[V]:
        return iter(self.cache)

    async def run(self) -> None:
        """Follow until cancelled, from when the server serves this kind."""
        if self._resource.custom:
            while not await self._is_served():
                await self._clock.sleep(jittered(LOOK, self._random))
        self._follows, self._absent_at = True, None
        await self.cache.run()

    @property
    def why_unknown(self) -> str:
        """Why it is not known what there is, in words; empty: it is."""
        if self.cache.is_synced or self._absent_at is not None:
            return ""
        return f"{self.name}: {self.cache.why or self._trouble or 'not listed yet'}"

    @property
    def age(self) -> float:
        """Seconds since something proved that this is how things are."""
        if self._absent_at is not None:
            return self._clock.monotonic() - self._absent_at
        return self.cache.age

    async def prove(self) -> str:
        """Why it cannot be shown that this is how things are now; empty: it was."""
        if self._absent_at is not None:
            return f"{self.name}: served now" if await self._is_served() else self._trouble
        if await self.cache.prove(within=PROOF):
            return ""
        # All its objects were told as deleted when its definition went.
        if not len(self.cache) and self._resource.custom and not await self._is_served():
            return self._trouble
        return f"{self.name}: {self.cache.why}"

    async def _is_served(self) -> bool:
        asked = self._clock.monotonic()
        self._trouble = ""
        try:
            await self._kube.page(self._resource, limit=1, within=PROOF)
        except UnknownKind:
            if not self._follows:
                self._absent_at = asked
            return False
        except KubeError as error:
            self._trouble = f"{self.name}: {error}"
            return False
        return True


class Sources:
    """All of them."""

    def __init__(self, kube: Kube, *, namespace: str, clock: Clock, random: chance.Random) -> None:
        def of(resource: Resource[V], *, inside: bool = False, fields: str = "") -> Source[V]:
            return Source(
                kube,
                resource,
                clock=clock,
                random=random,
                namespace=namespace if inside else "",
                fields=fields,
            )

        self.policies: Mapping[str, Source[things.PolicyObject]] = {
            kind: of(resource) for kind, resource in things.POLICIES.items()
        }
        self.gpu_clusters = of(things.GPU_CLUSTERS)
        self.rollouts = of(things.ROLLOUTS)
        self.nodes = of(things.NODES)
        self.daemon_sets = of(things.DAEMON_SETS, inside=True)
        self.configs = of(things.CONFIGS, inside=True)
        self.runtime_classes = of(things.RUNTIME_CLASSES)
        self.leases: Source[Lease] = of(LEASES, fields=f"metadata.name={things.FOREIGN_LEASE}")
        self.operands: Mapping[str, Source[Any]] = {
            things.DAEMON_SETS.kind: self.daemon_sets,
            things.CONFIGS.kind: self.configs,
            things.RUNTIME_CLASSES.kind: self.runtime_classes,
        }

    def all(self) -> tuple[Source[Any], ...]:
        """Each once."""
        return (
            *self.policies.values(),
            self.gpu_clusters,
            self.rollouts,
            self.nodes,
            *self.operands.values(),
            self.leases,
        )

    def unknown(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))

    async def doubts(self) -> str:
        """Why it cannot be shown that all this is of now; empty: it was."""
        old = [source for source in self.all() if source.age > OLD]
        async with asyncio.TaskGroup() as asking:
            proofs = [asking.create_task(source.prove()) for source in old]
        return "; ".join(why for proof in proofs if (why := proof.result()))

    def on_change(self, told: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        """Call `told` for each change of anything, until the returned function is called."""
        ends = [source.cache.on_change(told) for source in self.all()]

        def end() -> None:
            for each in ends:
                each()

        return end
