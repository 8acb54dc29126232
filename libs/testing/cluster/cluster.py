"""A whole cluster over one API server: controllers and machines, to start, kill and end.

Over a real server, which has controllers of its own, only the machines run.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

from libs.kube.client import Kube
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.testing.cluster import (
    daemonset_controller,
    disruption,
    garbage_collector,
    jobs,
    namespaces,
    node_lifecycle,
    pod_removal,
    pod_scheduler,
    workloads,
)
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.kubelet.container import ProcessFactory, no_process
from libs.testing.cluster.kubelet.fleet import KubeFor, KubeletFleet
from libs.testing.stage.worlds import MachineModel

MANAGER = "kube-controller-manager"
INFORMERS_USER = "system:kube-controller-manager"


class ClusterController(Protocol):
    async def run(self) -> None: ...


class _ControllerFactory(Protocol):
    def __call__(
        self, informers: ClusterInformers, kube: Kube, *, clock: Clock
    ) -> ClusterController: ...


CONTROLLERS: dict[str, tuple[_ControllerFactory, str, str]] = {
    "daemon-sets": (daemonset_controller.DaemonSetController, daemonset_controller.USER, MANAGER),
    "replica-sets": (workloads.ReplicaSetController, workloads.REPLICA_SET_USER, MANAGER),
    "jobs": (jobs.JobController, jobs.USER, MANAGER),
    "binder": (pod_scheduler.PodScheduler, pod_scheduler.USER, pod_scheduler.MANAGER),
    "disruption": (disruption.DisruptionController, disruption.USER, MANAGER),
    "node-lifecycle": (node_lifecycle.NodeLifecycleController, node_lifecycle.USER, MANAGER),
    "node-ttl": (node_lifecycle.TtlController, node_lifecycle.TTL_USER, MANAGER),
    "taint-eviction": (pod_removal.TaintEvictionController, pod_removal.EVICTION_USER, MANAGER),
    "pod-collector": (pod_removal.PodGarbageCollector, pod_removal.COLLECTOR_USER, MANAGER),
    "garbage-collector": (garbage_collector.GarbageCollector, garbage_collector.USER, MANAGER),
    "accounts": (namespaces.DefaultAccountController, namespaces.ACCOUNT_USER, MANAGER),
    "certificates": (
        namespaces.RootCertificatePublisher,
        namespaces.CERTIFICATE_USER,
        MANAGER,
    ),
}
"""By name: class, user and field manager."""

INFORMERS = "informers"
KUBELETS = "kubelets"


class SimulatedCluster:
    """Run everything while entered; a failing part ends the whole cluster."""

    def __init__(
        self,
        kube_for: KubeFor,
        *,
        model: MachineModel,
        env: Env,
        processes: ProcessFactory = no_process,
        controllers: bool = True,
        lease_every: float = 10.0,
    ) -> None:
        self._kube_for = kube_for
        self._clock = env.clock
        self._controllers = controllers
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.fleet = KubeletFleet(
            kube_for,
            model=model,
            env=env,
            processes=processes,
            lease_every=lease_every,
        )
        self._informers = ClusterInformers(kube_for(INFORMERS_USER, MANAGER), env=env)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._start_task(KUBELETS, self.fleet.run())
        if self._controllers:
            self._start_task(INFORMERS, self._informers.run())
            for name in CONTROLLERS:
                self.start(name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await self._group.__aexit__(kind, error, trace)
        else:
            # Let the block's own error propagate as it is, not inside an exception group.
            await self._group.__aexit__(None, None, None)

    @property
    def running(self) -> list[str]:
        """Names of the parts that have not been killed."""
        return [name for name, task in self._tasks.items() if not task.done()]

    async def kill(self, name: str) -> None:
        """Cancel a part at once; its requests under way may or may not take effect."""
        task = self._tasks[name]
        task.cancel()
        await asyncio.wait({task})

    def start(self, name: str) -> None:
        """Start a controller, for the first time or again after a kill."""
        if name in self.running:
            raise ValueError(f"{name} cannot be started: it is already running; kill it first")
        new, user, manager = CONTROLLERS[name]
        kube = self._kube_for(user, manager)
        self._start_task(
            name, self._when_synced(lambda: new(self._informers, kube, clock=self._clock))
        )

    async def _when_synced(self, new: Callable[[], ClusterController]) -> None:
        await self._informers.synced()
        await new().run()

    def _start_task(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = self._group.create_task(coroutine, name=f"cluster/{name}")
