"""A whole cluster over one API server: its controllers and its machines, to start, kill and end.

Over a real server that has controllers of its own, only the machines are wanted. Must know nothing
of the server beyond the clients that it is given.
"""

import asyncio
import random as chance
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

from libs.forecast.world import Model
from libs.kube.client import Kube
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.testing.cluster import binder, disruption, garbage
from libs.testing.cluster.daemonsets import controller as daemonsets
from libs.testing.cluster.informers import Informers
from libs.testing.cluster.kubelet.fleet import KubeFor, KubeletFleet
from libs.testing.cluster.kubelet.occupants import Occupants, nobody
from libs.testing.cluster.namespaces import ending, furniture
from libs.testing.cluster.nodes import leaving, lifecycle, ttl
from libs.testing.cluster.workloads import controllers as workloads

MANAGER = "kube-controller-manager"
INFORMERS_USER = "system:kube-controller-manager"


class Controller(Protocol):
    """A part of the control plane."""

    async def run(self) -> None:
        """Until it is cancelled."""
        ...


class _Kind(Protocol):
    def __call__(self, seen: Informers, kube: Kube, *, clock: Clock) -> Controller: ...


CONTROLLERS: dict[str, tuple[_Kind, str, str]] = {
    "daemon-sets": (daemonsets.DaemonSets, daemonsets.USER, MANAGER),
    "replica-sets": (workloads.ReplicaSets, workloads.REPLICA_SET_USER, MANAGER),
    "jobs": (workloads.Jobs, workloads.JOB_USER, MANAGER),
    "binder": (binder.Binder, binder.USER, binder.MANAGER),
    "disruption": (disruption.Disruption, disruption.USER, MANAGER),
    "node-lifecycle": (lifecycle.NodeLifecycle, lifecycle.USER, MANAGER),
    "node-ttl": (ttl.TimeToLive, ttl.USER, MANAGER),
    "taint-eviction": (leaving.TaintEviction, leaving.EVICTION_USER, MANAGER),
    "pod-collector": (leaving.PodCollector, leaving.COLLECTOR_USER, MANAGER),
    "garbage-collector": (garbage.GarbageCollector, garbage.USER, MANAGER),
    "namespaces": (ending.NamespaceEnding, ending.USER, MANAGER),
    "accounts": (furniture.Accounts, furniture.ACCOUNT_USER, MANAGER),
    "certificates": (furniture.Certificates, furniture.CERTIFICATE_USER, MANAGER),
}
"""By name: what it is, as whom it speaks, and what it calls itself."""

INFORMERS = "informers"
KUBELETS = "kubelets"


class Cluster:
    """While it is entered, everything runs; a part that fails ends it all."""

    def __init__(
        self,
        kube_for: KubeFor,
        *,
        model: Model,
        clock: Clock,
        ids: Ids,
        random: chance.Random,
        occupants: Occupants = nobody,
        controllers: bool = True,
        lease_every: float = 10.0,
    ) -> None:
        self._kube_for = kube_for
        self._clock = clock
        self._random = random
        self._controllers = controllers
        self._group = asyncio.TaskGroup()
        self._parts: dict[str, asyncio.Task[None]] = {}
        self.fleet = KubeletFleet(
            kube_for,
            model=model,
            clock=clock,
            ids=ids,
            random=random,
            occupants=occupants,
            lease_every=lease_every,
        )
        self._seen = Informers(kube_for(INFORMERS_USER, MANAGER), clock=clock, random=random)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._begin(KUBELETS, self.fleet.run())
        if self._controllers:
            self._begin(INFORMERS, self._seen.run())
            for name in CONTROLLERS:
                self.start(name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._parts.values():
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await self._group.__aexit__(kind, error, trace)
        else:
            # What the block raised is the block's: it goes on as it is, not as part of a group.
            await self._group.__aexit__(None, None, None)

    @property
    def running(self) -> list[str]:
        """Names of the parts that are not killed."""
        return [name for name, task in self._parts.items() if not task.done()]

    async def kill(self, name: str) -> None:
        """End a part where it stands; what it had begun at the server may be done or not."""
        task = self._parts[name]
        task.cancel()
        await asyncio.wait({task})

    def start(self, name: str) -> None:
        """Start a controller, for the first time or again: it remembers nothing."""
        if name in self.running:
            raise ValueError(f"{name} was to be started, but it runs: kill it first")
        make, user, manager = CONTROLLERS[name]
        kube = self._kube_for(user, manager)
        self._begin(name, self._when_synced(lambda: make(self._seen, kube, clock=self._clock)))

    async def _when_synced(self, make: Callable[[], Controller]) -> None:
        await self._seen.synced()
        await make().run()

    def _begin(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        self._parts[name] = self._group.create_task(part, name=f"cluster/{name}")
