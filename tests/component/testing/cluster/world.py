"""A cluster in virtual time: a simulated server, controllers, kubelets and a user."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from libs.contracts.journal import Revision
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.resources import Resource
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.kubelet.container import ProcessFactory, no_process
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.kubelet.kubelet import SimulatedKubelet
from libs.testing.cluster.views import DAEMON_SETS, NODES, PODS, DaemonSet, Node, Pod
from libs.testing.simulation import Sim, run
from libs.testing.stage.worlds import MachineModel, SteadyWorld
from tests.support import played_by

T = TypeVar("T")

NAMESPACE = "default"


class ClusterWorld:
    def __init__(
        self,
        sim: Sim,
        *,
        model: MachineModel,
        processes: ProcessFactory = no_process,
        lease_every: float = 10.0,
    ) -> None:
        self.sim = sim
        self.server = ApiServer(
            clock=sim.clock,
            ids=sim.ids,
            random=sim.random_for("apiserver"),
            history_changes=100_000,
        )
        self.cluster = SimulatedCluster(
            self.kube_for,
            model=model,
            env=sim.env("cluster"),
            processes=processes,
            lease_every=lease_every,
        )
        self.kube = self.kube_for("person", "kubectl")

    def kube_for(self, user: str, manager: str) -> Kube:
        """Return a client that calls the server in memory."""
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    @property
    def now(self) -> float:
        return self.sim.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    async def until(
        self,
        holds: Callable[[], Coroutine[Any, Any, bool]],
        *,
        within: float = 60.0,
        every: float = 0.05,
    ) -> float:
        """Wait until the condition holds; return the virtual seconds that it took."""
        started = self.now
        while not await holds():
            assert self.now - started < within, f"the condition does not hold after {within} s"
            await self.sleep(every)
        return self.now - started

    # Writes of a user

    async def create(self, resource: Resource[Any], wanted: dict[str, Any]) -> Any:
        return await self.kube.create(resource, wanted, namespace=NAMESPACE)

    async def change(self, resource: Resource[Any], name: str, change: dict[str, Any]) -> None:
        """Merge a patch, at any revision."""
        namespace = NAMESPACE if resource.namespaced else ""
        path = resource.path(namespace=namespace, name=name)
        query = {"fieldManager": self.kube.manager}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def label(self, node: str, labels: dict[str, str | None]) -> None:
        await self.change(NODES, node, {"metadata": {"labels": labels}})

    async def cordon(self, node: str, *, on: bool = True) -> None:
        await self.change(NODES, node, {"spec": {"unschedulable": True if on else None}})

    async def delete(
        self, resource: Resource[Any], name: str, *, policy: str = "Background"
    ) -> None:
        path = resource.path(namespace=NAMESPACE if resource.namespaced else "", name=name)
        await self.kube.request("DELETE", path, body={"propagationPolicy": policy})

    # Reads

    async def node(self, name: str) -> Node:
        return await self.kube.get(NODES, name)

    async def pods(self, app: str = "") -> list[Pod]:
        labels = f"app={app}" if app else ""
        page = await self.kube.list_page(PODS, namespace=NAMESPACE, labels=labels)
        return list(page.items)

    async def pod(self, app: str) -> Pod:
        (pod,) = await self.pods(app)
        return pod

    async def ready(self, app: str, count: int, *, within: float = 60.0) -> float:
        """Wait until a workload has exactly this many pods, all ready."""

        async def all_ready() -> bool:
            pods = await self.pods(app)
            return len(pods) == count and all(pod.ready and not pod.deleting for pod in pods)

        return await self.until(all_ready, within=within)

    async def daemon_set(self, name: str) -> DaemonSet:
        return await self.kube.get(DAEMON_SETS, name, namespace=NAMESPACE)

    def machine(self, name: str) -> SimulatedKubelet:
        return self.cluster.fleet[name]

    def journal(self, **fields: str) -> list[Revision]:
        """Return the writes that match these fields."""
        return [
            revision
            for revision in self.server.journal.revisions
            if all(getattr(revision, field) == value for field, value in fields.items())
        ]


@asynccontextmanager
async def cluster_world(
    sim: Sim,
    nodes: int = 1,
    *,
    model: MachineModel | None = None,
    processes: ProcessFactory = no_process,
    labels: dict[str, str] | None = None,
    gpus: int = 8,
    lease_every: float = 10.0,
) -> AsyncGenerator[ClusterWorld]:
    """Run a cluster; its nodes are Ready and without taints."""
    world = ClusterWorld(
        sim, model=model or SteadyWorld(), processes=processes, lease_every=lease_every
    )
    async with world.cluster:
        for number in range(1, nodes + 1):
            world.cluster.fleet.add(f"n{number}", Hardware(gpus=gpus, labels=labels or {}))

        async def settled() -> bool:
            registered = (await world.kube.list_page(NODES)).items
            return len(registered) == nodes and not any(node.spec.taints for node in registered)

        await world.until(settled)
        yield world


def in_cluster(
    nodes: int = 1, **options: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that turns an async function of a cluster into a test."""

    def play(story: Callable[[ClusterWorld], Coroutine[Any, Any, None]]) -> None:
        async def main(sim: Sim) -> None:
            async with cluster_world(sim, nodes, **options) as world:
                await story(world)

        run(main, seed=1)

    return played_by(play)


def run_world(main: Callable[[Sim], Coroutine[Any, Any, T]], *, seed: int = 1) -> T:
    return run(main, seed=seed)
