"""What the controllers of one process see: a cache of each kind, shared by all of them."""

import asyncio
from collections.abc import Iterator
from typing import Any

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS
from libs.kube.views import Object
from libs.runtime.env import Env
from libs.testing.cluster.kubelet.hardware import LEASES_IN
from libs.testing.cluster.views import (
    BUDGETS,
    DAEMON_SETS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    Pod,
)

DEFAULT_ACCOUNT = "default"
ROOT_CERTIFICATE = "kube-root-ca.crt"
"""What stands in every namespace."""


class ClusterInformers:
    """The caches; a controller asks them and listens to them, and never writes into another's."""

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
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, cache in self._all():
                group.create_task(cache.run(), name=f"informers/{name}")

    async def synced(self) -> None:
        """Return once everything was listed."""
        for _, cache in self._all():
            await cache.wait_synced()

    def _all(self) -> Iterator[tuple[str, Cache[Any]]]:
        for name, value in vars(self).items():
            if isinstance(value, Cache):
                yield name, value


def by_owner(thing: Object) -> tuple[str, ...]:
    """The uids of its owners; what has none is an orphan of its namespace."""
    owners = tuple(reference.uid for reference in thing.metadata.owner_references)
    return owners or (orphans_of(thing.metadata.namespace),)


def by_node(pod: Pod) -> tuple[str, ...]:
    """The node it is bound to."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def by_namespace(pod: Pod) -> tuple[str, ...]:
    """The one it lives in."""
    return (pod.metadata.namespace,)


def orphans_of(namespace: str) -> str:
    """Where the index of owners keeps what nobody owns."""
    return f"nobody in {namespace}"
