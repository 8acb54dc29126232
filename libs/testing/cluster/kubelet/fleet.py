"""Many kubelets in one process, on one watch of all pods and one work queue.

A watch and a loop for each of a thousand kubelets would cost a thousand tasks. Instead, heartbeats
and the next event of each pod are delayed keys of the queue.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import by_node
from libs.testing.cluster.kubelet import hardware as hw
from libs.testing.cluster.kubelet.container import ProcessFactory, no_process
from libs.testing.cluster.kubelet.kubelet import SimulatedKubelet
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.views import LEASES, NODES, PODS, Node, Pod
from libs.testing.stage.worlds import MachineModel

KubeFor = Callable[[str, str], Kube]
"""Creates a client for a user and a field manager."""

MANAGER = "kubelet"
LEASE_EVERY = 10.0
STATUS_EVERY = 300.0
WORKERS = 32

PLAIN = hw.Hardware()
"""Eight GPUs and no particular labels."""

_Key = tuple[str, str]
"""A node's name, and `node`, `lease` or the uid of a pod."""


class KubeletFleet:
    """Machines, which can be added at any time; they run while `run` does."""

    def __init__(
        self,
        kube_for: KubeFor,
        *,
        model: MachineModel,
        env: Env,
        processes: ProcessFactory = no_process,
        lease_every: float = LEASE_EVERY,
        back_off: float = 1.0,
    ) -> None:
        """`back_off`: a multiple of the usual back-off between restarts of a container."""
        self._env = env
        self._kube_for = kube_for
        self._model = model
        self._clock = env.clock
        self._random = env.random
        self._processes = processes
        self._lease_every = lease_every
        self._back_off = back_off
        self._kubelets: dict[str, SimulatedKubelet] = {}
        self._pods = Cache(
            kube_for("system:kubelets", MANAGER),
            PODS,
            env=env,
            indexes={"node": by_node},
        )
        self._loop = ControllerLoop[_Key](
            "kubelets", self._reconcile, clock=env.clock, workers=WORKERS
        )
        self._addresses = _addresses()

    def add(self, name: str, hardware: hw.Hardware = PLAIN) -> SimulatedKubelet:
        """Add a machine; its kubelet registers at once."""
        if name in self._kubelets:
            raise ValueError(
                f"machine {name} cannot be added: it exists already; choose another name"
            )
        kubelet = self._kubelets[name] = SimulatedKubelet(
            name,
            hardware,
            number=len(self._kubelets) + 1,
            addresses=self._addresses,
            kube=self._kube_for(f"system:node:{name}", MANAGER),
            model=self._model,
            processes=self._processes,
            env=self._env,
            on_change=self._enqueue,
            list_pods=lambda node: self._pods.by_index("node", node),
            back_off=self._back_off,
        )
        self._loop.queue.add((name, "node"))
        return kubelet

    def __getitem__(self, name: str) -> SimulatedKubelet:
        return self._kubelets[name]

    def __iter__(self) -> Iterator[SimulatedKubelet]:
        return iter(self._kubelets.values())

    def __len__(self) -> int:
        return len(self._kubelets)

    async def run(self) -> None:
        """Run until cancelled; then all machines lose power."""
        unsubscribe = self._pods.on_change(self._pod_changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run(), name="kubelets/pods")
                group.create_task(self._loop.run(), name="kubelets/work")
        finally:
            unsubscribe()
            for kubelet in self:
                kubelet.power_off()

    def _enqueue(self, kubelet: SimulatedKubelet, what: str) -> None:
        self._loop.queue.add((kubelet.name, what))

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            kubelet = self._kubelets.get(before.spec.node_name)
            if kubelet is not None:
                kubelet.pod_deleted(before.metadata.uid)
        if after is not None:
            kubelet = self._kubelets.get(after.spec.node_name)
            if kubelet is not None:
                kubelet.pod_updated(after)

    async def _reconcile(self, key: _Key) -> float | None:
        kubelet = self._kubelets[key[0]]
        if key[1] == "node":
            return await self._sync_node(kubelet)
        if key[1] == "lease":
            return await self._renew_lease(kubelet)
        return await self._sync_pod(kubelet, key[1])

    async def _sync_node(self, kubelet: SimulatedKubelet) -> float | None:
        if not kubelet.is_connected:
            return None
        if not kubelet.node_uid:
            await self._register(kubelet)
            first = self._random.uniform(0.0, self._lease_every)
            self._loop.queue.add_after((kubelet.name, "lease"), first)
            return jittered(STATUS_EVERY, self._random)
        try:
            node = await kubelet.kube.get(NODES, kubelet.name)
        except NotFound:
            return None  # a kubelet does not recreate its deleted Node by itself
        await patch_status(kubelet.kube, NODES, node, self._node_status(kubelet, node))
        return jittered(STATUS_EVERY, self._random)

    async def _register(self, kubelet: SimulatedKubelet) -> None:
        now = self._clock.now()
        wanted = hw.node(
            kubelet.name,
            kubelet.hardware,
            ip=kubelet.ip,
            boot_id=kubelet.boot_id,
            kernel=kubelet.kernel,
            now=now,
        )
        try:
            counts = hw.device_counts(kubelet.device_counts())
            status = wanted["status"]
            status |= {name: status[name] | counts[name] for name in counts}
            node = await kubelet.kube.create(NODES, wanted)
        except AlreadyExists:
            node = await kubelet.kube.get(NODES, kubelet.name)
            await patch_status(kubelet.kube, NODES, node, self._node_status(kubelet, node))
        kubelet.node_uid = node.metadata.uid
        await self._acquire_lease(kubelet)

    def _node_status(self, kubelet: SimulatedKubelet, node: Node) -> dict[str, object]:
        now = self._clock.now()
        ready = node.condition("Ready")
        since = ready.last_transition_time if ready is not None and ready.status == "True" else ""
        info = hw.node_info(boot_id=kubelet.boot_id, kernel=kubelet.kernel, machine=kubelet.name)
        return {
            "conditions": hw.conditions(now=now, since=since),
            "nodeInfo": info,
            **hw.device_counts(kubelet.device_counts()),
        }

    async def _acquire_lease(self, kubelet: SimulatedKubelet) -> None:
        wanted = self._lease(kubelet, resource_version="")
        try:
            lease = await kubelet.kube.create(LEASES, wanted, namespace=hw.LEASES_IN)
        except AlreadyExists:
            lease = await kubelet.kube.get(LEASES, kubelet.name, namespace=hw.LEASES_IN)
        kubelet.lease_version = lease.metadata.resource_version

    async def _renew_lease(self, kubelet: SimulatedKubelet) -> float | None:
        if not kubelet.is_connected or not kubelet.node_uid:
            return None
        wanted = self._lease(kubelet, resource_version=kubelet.lease_version)
        try:
            lease = await kubelet.kube.replace(LEASES, wanted, namespace=hw.LEASES_IN)
        except (Conflict, NotFound):
            await self._acquire_lease(kubelet)
            return 0.0
        except KubeError:
            # The node may be marked as unknown by now.
            self._loop.queue.add_after((kubelet.name, "node"), self._lease_every)
            raise
        kubelet.lease_version = lease.metadata.resource_version
        return self._lease_every

    def _lease(self, kubelet: SimulatedKubelet, *, resource_version: str) -> dict[str, object]:
        return hw.lease(
            kubelet.name,
            node_uid=kubelet.node_uid,
            seconds=round(4 * self._lease_every),
            now=self._clock.now(),
            resource_version=resource_version,
        )

    async def _sync_pod(self, kubelet: SimulatedKubelet, uid: str) -> float | None:
        lifecycle = kubelet.pods.get(uid)
        if lifecycle is None or not kubelet.is_on:
            return None
        now = self._clock.now()
        lifecycle.advance(now)
        if kubelet.is_connected:
            try:
                if lifecycle.gone:
                    await self._remove(kubelet, lifecycle.pod)
                    kubelet.pod_deleted(uid)
                    return None
                status = lifecycle.status(now)
                if status != lifecycle.written:
                    written = await patch_status(kubelet.kube, PODS, lifecycle.pod, status)
                    lifecycle.status_written(status, written)
                    self._pods.record_write(written)
            except (NotFound, Conflict):
                kubelet.pod_deleted(uid)
                return None
        return None if lifecycle.next is None else max(0.0, lifecycle.next - self._clock.now())

    async def _remove(self, kubelet: SimulatedKubelet, pod: Pod) -> None:
        meta = pod.metadata
        await kubelet.kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace, grace=0)


def _addresses() -> Iterator[str]:
    """Yield unique pod addresses; they repeat after eight million."""
    for number in itertools.count(1):
        yield f"10.{128 + number // 65536 % 128}.{number // 256 % 256}.{number % 256}"
