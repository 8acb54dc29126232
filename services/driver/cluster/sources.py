"""Everything that this role follows on the API server. What is made of it is not known here."""

import asyncio
import random as chance
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from libs.kube import foreign
from libs.kube.client import Kube
from libs.kube.customs import followed
from libs.kube.resources import LEASES, Resource
from libs.kube.source import Source
from libs.kube.views import Lease, Object
from libs.runtime.clock import Clock
from services.driver.cluster import things

OLD: Final = 10.0
"""What was proved so long ago is asked to prove itself before anything is taken away."""

V = TypeVar("V", bound=Object)


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

        self.policies = followed(things.POLICIES, kube, clock=clock, random=random)
        self.gpu_clusters = of(things.GPU_CLUSTERS)
        self.rollouts = of(things.ROLLOUTS)
        self.nodes = of(things.NODES)
        self.daemon_sets = of(things.DAEMON_SETS, inside=True)
        self.configs = of(things.CONFIGS, inside=True)
        self.runtime_classes = of(things.RUNTIME_CLASSES)
        self.leases: Source[Lease] = of(LEASES, fields=f"metadata.name={foreign.LEASE}")
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
