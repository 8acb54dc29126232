"""The informers of this role."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from libs.kube.client import Kube
from libs.kube.informer import Informer, informers
from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES, Resource
from libs.kube.views import Lease, Object
from libs.runtime.env import Env
from services.driver.cluster import resources

MAX_AGE: Final = 10.0
"""Seconds after which an informer must be verified before anything is deleted."""

V = TypeVar("V", bound=Object)


class Informers:
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
        self.leases: Informer[Lease] = of(LEASES, fields=f"metadata.name={GPU_OPERATOR_LEASE}")
        self.operands: Mapping[str, Informer[Any]] = {
            resources.DAEMON_SETS.kind: self.daemon_sets,
            resources.CONFIGS.kind: self.configs,
            resources.RUNTIME_CLASSES.kind: self.runtime_classes,
        }

    def all(self) -> tuple[Informer[Any], ...]:
        return (
            *self.policies.values(),
            self.gpu_clusters,
            self.rollouts,
            self.nodes,
            *self.operands.values(),
            self.leases,
        )

    def why_not_synced(self) -> str:
        """Return why some informer has no first list yet; empty once all have."""
        return "; ".join(why for informer in self.all() if (why := informer.why_unknown))

    async def why_stale(self) -> str:
        """Verify old caches; return why some may be stale, empty if all are current."""
        old = [informer for informer in self.all() if informer.age > MAX_AGE]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.verify_current()) for informer in old]
        return "; ".join(why for task in tasks if (why := task.result()))

    def on_change(
        self, handler: Callable[[Object | None, Object | None], None]
    ) -> Callable[[], None]:
        """Call `handler` for each change, until the returned function is called."""
        subscriptions = [informer.cache.on_change(handler) for informer in self.all()]

        def unsubscribe() -> None:
            for each in subscriptions:
                each()

        return unsubscribe
