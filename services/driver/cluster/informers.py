"""Everything that this role follows on the API server. What is made of it is not known here."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from libs.kube import gpu_operator
from libs.kube.client import Kube
from libs.kube.custom_resources import informers
from libs.kube.informer import Informer
from libs.kube.resources import LEASES, Resource
from libs.kube.views import Lease, Object
from libs.runtime.env import Env
from services.driver.cluster import resources

MAX_AGE: Final = 10.0
"""What was proved so long ago is asked to prove itself before anything is taken away."""

V = TypeVar("V", bound=Object)


class Informers:
    """All of them."""

    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        def of(resource: Resource[V], *, inside: bool = False, fields: str = "") -> Informer[V]:
            return Informer(
                kube,
                resource,
                env=env,
                namespace=namespace if inside else "",
                fields=fields,
            )

        self.policies = informers(resources.POLICIES, kube, env=env)
        self.gpu_clusters = of(resources.GPU_CLUSTERS)
        self.rollouts = of(resources.ROLLOUTS)
        self.nodes = of(resources.NODES)
        self.daemon_sets = of(resources.DAEMON_SETS, inside=True)
        self.configs = of(resources.CONFIGS, inside=True)
        self.runtime_classes = of(resources.RUNTIME_CLASSES)
        self.leases: Informer[Lease] = of(LEASES, fields=f"metadata.name={gpu_operator.LEASE}")
        self.operands: Mapping[str, Informer[Any]] = {
            resources.DAEMON_SETS.kind: self.daemon_sets,
            resources.CONFIGS.kind: self.configs,
            resources.RUNTIME_CLASSES.kind: self.runtime_classes,
        }

    def all(self) -> tuple[Informer[Any], ...]:
        """Each once."""
        return (
            *self.policies.values(),
            self.gpu_clusters,
            self.rollouts,
            self.nodes,
            *self.operands.values(),
            self.leases,
        )

    def why_not_synced(self) -> str:
        """Why it is not known yet what there is, in words; empty: it is."""
        return "; ".join(why for source in self.all() if (why := source.why_unknown))

    async def why_stale(self) -> str:
        """Why it cannot be shown that all this is of now; empty: it was."""
        old = [source for source in self.all() if source.age > MAX_AGE]
        async with asyncio.TaskGroup() as asking:
            proofs = [asking.create_task(source.verify_current()) for source in old]
        return "; ".join(why for proof in proofs if (why := proof.result()))

    def on_change(
        self, handler: Callable[[Object | None, Object | None], None]
    ) -> Callable[[], None]:
        """Call `told` for each change of anything, until the returned function is called."""
        ends = [source.cache.on_change(handler) for source in self.all()]

        def end() -> None:
            for each in ends:
                each()

        return end
