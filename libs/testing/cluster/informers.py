"""The caches of the controllers: one of each kind, shared by all."""

import asyncio
from collections.abc import Iterator
from typing import Any

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from libs.kube.views import Object
from libs.runtime.env import Env
from libs.testing.cluster.kubelet.hardware import LEASES_IN
from libs.testing.cluster.views import (
    BUDGETS,
    DAEMON_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    Pod,
)

DEFAULT_ACCOUNT = "default"
ROOT_CERTIFICATE = "kube-root-ca.crt"
"""Objects that every namespace has."""


class ClusterInformers:
    def __init__(self, kube: Kube, *, env: Env) -> None:
        common: dict[str, Any] = {"env": env}
        owned: dict[str, Any] = {**common, "indexes": {"owner": by_owner}}
        of_pods = {"owner": by_owner, "node": by_node, "namespace": by_namespace}
        self.nodes = Cache(kube, NODES, **common)
        self.pods = Cache(kube, PODS, **common, indexes=of_pods)
        self.leases = Cache(kube, LEASES, **owned, namespace=LEASES_IN)
        self.daemon_sets = Cache(kube, DAEMON_SETS, **common)
        self.revisions = Cache(kube, REVISIONS, **owned)
        self.replica_sets = Cache(kube, REPLICA_SETS, **common)
        self.jobs = Cache(kube, JOBS, **common)
        self.budgets = Cache(kube, BUDGETS, **common)
        self.namespaces = Cache(kube, NAMESPACES, **common)
        named = "metadata.name={}".format
        self.accounts = Cache(kube, SERVICE_ACCOUNTS, **common, fields=named(DEFAULT_ACCOUNT))
        self.certificates = Cache(kube, CONFIG_MAPS, **common, fields=named(ROOT_CERTIFICATE))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, cache in self._caches():
                group.create_task(cache.run(), name=f"informers/{name}")

    async def synced(self) -> None:
        """Return once every cache has been listed."""
        for _, cache in self._caches():
            await cache.wait_synced()

    def _caches(self) -> Iterator[tuple[str, Cache[Any]]]:
        for name, value in vars(self).items():
            if isinstance(value, Cache):
                yield name, value


def by_owner(obj: Object) -> tuple[str, ...]:
    """Index by the uids of the owners; objects without an owner by `orphans_of` their namespace."""
    owners = tuple(reference.uid for reference in obj.metadata.owner_references)
    return owners or (orphans_of(obj.metadata.namespace),)


def by_node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def by_namespace(pod: Pod) -> tuple[str, ...]:
    return (pod.metadata.namespace,)


def orphans_of(namespace: str) -> str:
    """Return the index key of the objects in a namespace that have no owner."""
    return f"orphans in {namespace}"
