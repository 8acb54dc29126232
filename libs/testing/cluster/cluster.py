"""A whole cluster over one API server: its controllers and its machines, to start, kill and end.

Over a real server that has controllers of its own, only the machines are wanted. Must know nothing
of the server beyond the clients that it is given.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

from libs.forecast.world import WorldModel
from libs.kube.client import Kube
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.testing.cluster import disruption, garbage_collector, pod_scheduler
from libs.testing.cluster.daemonsets import controller as daemonsets
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.kubelet.container_process import ProcessFactory, no_process
from libs.testing.cluster.kubelet.fleet import KubeFor, KubeletFleet
from libs.testing.cluster.namespaces import controller, default_objects
from libs.testing.cluster.nodes import lifecycle, pod_removal, ttl
from libs.testing.cluster.workloads import controllers as workloads

MANAGER = "kube-controller-manager"
INFORMERS_USER = "system:kube-controller-manager"


class ClusterController(Protocol):
    """A part of the control plane."""

    async def run(self) -> None:
        """Until it is cancelled."""
        ...


class _Kind(Protocol):
    def __call__(
        self, informers: ClusterInformers, kube: Kube, *, clock: Clock
    ) -> ClusterController: ...


CONTROLLERS: dict[str, tuple[_Kind, str, str]] = {
    "daemon-sets": (daemonsets.DaemonSetController, daemonsets.USER, MANAGER),
    "replica-sets": (workloads.ReplicaSetController, workloads.REPLICA_SET_USER, MANAGER),
    "jobs": (workloads.JobController, workloads.JOB_USER, MANAGER),
    "binder": (pod_scheduler.PodScheduler, pod_scheduler.USER, pod_scheduler.MANAGER),
    "disruption": (disruption.DisruptionController, disruption.USER, MANAGER),
    "node-lifecycle": (lifecycle.NodeLifecycleController, lifecycle.USER, MANAGER),
    "node-ttl": (ttl.TtlController, ttl.USER, MANAGER),
    "taint-eviction": (pod_removal.TaintEvictionController, pod_removal.EVICTION_USER, MANAGER),
    "pod-collector": (pod_removal.PodGarbageCollector, pod_removal.COLLECTOR_USER, MANAGER),
    "garbage-collector": (garbage_collector.GarbageCollector, garbage_collector.USER, MANAGER),
    "namespaces": (controller.NamespaceController, controller.USER, MANAGER),
    "accounts": (default_objects.DefaultAccountController, default_objects.ACCOUNT_USER, MANAGER),
    "certificates": (
        default_objects.RootCertificatePublisher,
        default_objects.CERTIFICATE_USER,
        MANAGER,
    ),
}
"""By name: what it is, as whom it speaks, and what it calls itself."""

INFORMERS = "informers"
KUBELETS = "kubelets"


class SimulatedCluster:
    """While it is entered, everything runs; a part that fails ends it all."""

    def __init__(
        self,
        kube_for: KubeFor,
        *,
        model: WorldModel,
        env: Env,
        processes: ProcessFactory = no_process,
        controllers: bool = True,
        lease_every: float = 10.0,
    ) -> None:
        self._kube_for = kube_for
        self._clock = env.clock
        self._controllers = controllers
        self._group = asyncio.TaskGroup()
        self._parts: dict[str, asyncio.Task[None]] = {}
        self.fleet = KubeletFleet(
            kube_for,
            model=model,
            env=env,
            processes=processes,
            lease_every=lease_every,
        )
        self._seen = ClusterInformers(kube_for(INFORMERS_USER, MANAGER), env=env)

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

    async def _when_synced(self, make: Callable[[], ClusterController]) -> None:
        await self._seen.synced()
        await make().run()

    def _begin(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        self._parts[name] = self._group.create_task(part, name=f"cluster/{name}")
