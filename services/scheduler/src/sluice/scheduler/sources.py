"""Everything that the scheduler follows on the API server, and how far that can be relied upon.

A kind that the server does not serve is known to have no objects, and is waited for in silence:
somebody may install its definition later. What is made of objects is not known here.
"""

import asyncio
import random as chance
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from sluice.contracts.node import DRIVER_LABEL
from sluice.kube.cache import Cache
from sluice.kube.client import Kube
from sluice.kube.errors import KubeError, UnknownKind
from sluice.kube.holding import Index
from sluice.kube.resources import LEASES, Resource
from sluice.kube.views import Object
from sluice.policy.rendering.agents import AGENTS
from sluice.rollout.views.fleet import Source as Seen
from sluice.runtime.backoff import jittered
from sluice.runtime.clock import Clock
from sluice.scheduler import things

LOOK: Final = 10.0
"""Seconds between two looks whether a kind is served by now."""
PROOF: Final = 5.0
"""Seconds that a proof may take."""

_AGENTS: Final = ",".join(sorted(agent.app for agent in AGENTS))

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
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Index[V]] | None = None,
    ) -> None:
        self.name = resource.plural
        self.cache = Cache(
            kube,
            resource,
            clock=clock,
            random=random,
            namespace=namespace,
            labels=labels,
            fields=fields,
            indexes=indexes,
        )
        self._kube = kube
        self._resource = resource
        self._clock = clock
        self._random = random
        self._absent_at: float | None = None
        self._trouble = ""

    def __iter__(self) -> Iterator[V]:
        return iter(self.cache)

    async def run(self) -> None:
        """Follow until cancelled, from when the server serves this kind."""
        if self._resource.custom:
            while not await self._is_served():
                await self._clock.sleep(jittered(LOOK, self._random))
        self._absent_at = None
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

    async def prove(self) -> bool:
        """Whether it was shown that this is how things are now."""
        if self._absent_at is not None:
            return not await self._is_served()
        return await self.cache.prove(within=PROOF)

    async def _is_served(self) -> bool:
        asked = self._clock.monotonic()
        self._trouble = ""
        try:
            await self._kube.page(self._resource, limit=1, within=PROOF)
        except UnknownKind:
            self._absent_at = asked
            return False
        except KubeError as error:
            self._trouble = f"{self.name}: {error}"
            return False
        return True


def by_node(pod: things.Pod) -> tuple[str, ...]:
    """On which node it is."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class Sources:
    """All of them, and how sure we are of each part of the views."""

    def __init__(self, kube: Kube, *, namespace: str, clock: Clock, random: chance.Random) -> None:
        given: Any = {"clock": clock, "random": random}
        at_home: Any = {**given, "namespace": namespace}
        self._clock = clock
        self.nodes = Source(kube, things.NODES, **given)
        self.rollouts = Source(kube, things.ROLLOUTS, **given)
        self.policies: Mapping[str, Source[things.PolicyObject]] = {
            kind: Source(kube, resource, **given) for kind, resource in things.POLICIES.items()
        }
        self.gpu_clusters = Source(kube, things.GPU_CLUSTERS, **given)
        self.daemon_sets = Source(kube, things.DAEMON_SETS, labels=DRIVER_LABEL, **at_home)
        self.drivers = Source(
            kube, things.PODS, labels=DRIVER_LABEL, indexes={"node": by_node}, **at_home
        )
        others = f"!{DRIVER_LABEL},app notin ({_AGENTS})"
        self.neighbours = Source(
            kube, things.PODS, labels=others, indexes={"node": by_node}, **at_home
        )
        """NATS and our cluster roles, as far as they live beside the operands."""
        self.leases = Source(kube, LEASES, fields=f"metadata.name={things.FOREIGN_LEASE}", **given)
        self._parts: Mapping[str, tuple[Source[Any], ...]] = {
            "nodes": (self.nodes,),
            "pods": (self.drivers,),
            "rollouts": (self.rollouts,),
            "policies": (*self.policies.values(), self.gpu_clusters),
            "daemonsets": (self.daemon_sets,),
        }
        self._probed: dict[str, float] = {}

    def all(self) -> tuple[Source[Any], ...]:
        """Each once."""
        parts = (source for part in self._parts.values() for source in part)
        return (*parts, self.neighbours, self.leases)

    def unknown(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))

    def seen(self) -> dict[str, Seen]:
        """How sure we are of each part, as the engine asks for it."""
        now = self._clock.now()
        return {
            name: Seen(
                proved=now - max(source.age for source in sources),
                revision=str(max(source.cache.revision for source in sources)),
                probed=self._probed.get(name),
            )
            for name, sources in self._parts.items()
        }

    async def prove(self, part: str) -> None:
        """Have this part show that it is current; whether it did, its age tells."""
        self._probed[part] = self._clock.now()
        async with asyncio.TaskGroup() as asking:
            for source in self._parts[part]:
                asking.create_task(source.prove())
