"""What both columns run on: a real control plane, NATS, and the processes beside them."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.incumbent.plan import INCUMBENT, KUBELETS, Plan, stage_file
from bench.incumbent.world import WORK
from demo.admin import MANAGER, USER, DemoAdmin, path_of
from demo.environment import DemoEnvironment
from demo.paths import DemoPaths
from demo.process_group import ProcessGroup
from libs.contracts.identities import COMPONENTS
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.connect import open_transport
from libs.kube.errors import NotFound
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.realkube.binaries import Binaries
from libs.testing.realkube.cluster import RealKube
from libs.testing.realkube.components import MASTERS
from libs.testing.sign_in import SignInKeys
from tests.component.real_upgrade.installation import OURS, Installation

POLL = 0.25
WORKLOADS = "default"

Object = Mapping[str, Any]


class Stuck(Exception):
    """Something did not happen in time."""


class Ground:
    def __init__(self, plan: Plan, *, up: DemoEnvironment, kube: Kube, plane: RealKube) -> None:
        self.plan = plan
        self.up = up
        self.kube = kube
        self.plane = plane
        self.person = DemoAdmin(kube)

    async def install(self) -> None:
        """Install Sluice's definitions, accounts and rights, as an administrator does."""
        installed = Installation(self.up, kube=self.kube, plane=self.plane, nodes=self.plan.names)
        await installed.install()

    async def start_machines(self, role: str) -> None:
        """Start the machines of a column, and return when every Node exists."""
        (self.up.paths.folder / "machines").mkdir(exist_ok=True)
        await self.up.processes.start(
            "machines",
            "bench.incumbent.machines",
            role,
            folder=str(self.up.paths.folder),
            nodes=str(self.plan.nodes),
            factor=str(self.plan.factor),
            nats_url=self.up.nats.url,
        )
        await self.up.processes.wait_ready("machines")
        await self.until("every Node exists", self._all_registered, within=120)

    async def start_workloads(self) -> None:
        """Start a pod with GPUs on each busy node."""
        for name in self.plan.names:
            if self.plan.is_busy(name):
                await self.person.apply(_workload(name))
        await self.wait_for_workloads()

    async def wait_for_workloads(self) -> None:
        await self.until("every workload runs", self._all_work, within=120)

    async def clear(self) -> None:
        """Remove workloads, nodes and everything that the machines remember."""
        for name in self.plan.names:
            if self.plan.is_busy(name):
                await self.delete("apps/v1", "ReplicaSet", f"work-{name}", namespace=WORKLOADS)
        await self.until("no pod is left", self._no_pods, within=120)
        await self.up.processes.end()
        for name in self.plan.names:
            await self.delete("v1", "Node", name)
        await asyncio.to_thread(shutil.rmtree, self.up.paths.folder / "machines")
        stage_file(self.up.paths.folder).unlink(missing_ok=True)

    async def cordon(self, node: str) -> None:
        """`kubectl cordon`."""
        await self.merge(NODES.path(name=node), {"spec": {"unschedulable": True}})

    async def nodes(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in (await self.kube.list_page(NODES)).items}

    def version(self, node: str) -> str:
        """Return the version of the driver in a machine's kernel; empty: none."""
        file = self.up.paths.machine(node) / "sys/module/nvidia/version"
        return file.read_text().strip() if file.exists() else ""

    async def pods(self, namespace: str) -> list[Any]:
        body = await self.kube.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        return msgspec.json.decode(body)["items"]

    async def merge(self, path: str, change: Object) -> None:
        await self.kube.request(
            "PATCH",
            path,
            query={"fieldManager": MANAGER},
            body=change,
            content_type=MERGE_PATCH,
        )

    async def delete(self, api: str, kind: str, name: str, *, namespace: str = "") -> None:
        path = path_of(api, kind, name=name, namespace=namespace)
        try:
            await self.kube.request("DELETE", path, body={"propagationPolicy": "Background"})
        except NotFound:
            return

    async def until(
        self, what: str, condition: Callable[[], Awaitable[bool]], *, within: float
    ) -> None:
        """Wait; raise `Stuck` with the last lines of every process."""
        try:
            async with asyncio.timeout(self.plan.within(within)):
                while not await condition():
                    await asyncio.sleep(POLL)
        except TimeoutError as error:
            processes = self.up.processes.processes.items()
            tails = "\n".join(f"{name}:\n{each.child.tail()}" for name, each in processes)
            raise Stuck(f"{what}: not within {self.plan.within(within):g} s\n{tails}") from error

    async def _all_registered(self) -> bool:
        return set(await self.nodes()) >= set(self.plan.names)

    async def _all_work(self) -> bool:
        pods = await self.pods(WORKLOADS)
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        return len(running) == sum(map(self.plan.is_busy, self.plan.names))

    async def _no_pods(self) -> bool:
        body = await self.kube.request("GET", "/api/v1/pods")
        return not msgspec.json.decode(body)["items"]


@asynccontextmanager
async def provision(binaries: Binaries, plan: Plan) -> AsyncGenerator[Ground]:
    """Start the control plane and NATS; leave nothing behind at the end."""
    clock = SystemClock()
    users = {USER: [MASTERS], KUBELETS: [MASTERS], INCUMBENT: [MASTERS, INCUMBENT]}
    async with AsyncExitStack() as stack:
        plane = await RealKube.start(binaries=binaries, users=users, reads_of=[OURS, INCUMBENT])
        stack.push_async_callback(plane.stop)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-incumbent-"))
        paths = DemoPaths(Path(folder))
        for name in ("users", "keys", "tokens", "machines"):
            (paths.folder / name).mkdir()
        for user in users:
            paths.kubeconfig(user).write_text(plane.kubeconfig(user).read_text())
        sign_in = SignInKeys(paths.keys)
        config = sign_in.config(identities=len(plan.names) * len(COMPONENTS))
        nats = await stack.enter_async_context(NatsServer(config=config))
        processes = await stack.enter_async_context(ProcessGroup(os.environ))
        up = DemoEnvironment(
            paths, processes=processes, nats=nats, sign_in=sign_in, clock=clock, seed=1
        )
        transport = await open_transport(clock=clock, kubeconfig=paths.kubeconfig(USER))
        await stack.enter_async_context(transport)
        kube = Kube(transport, manager=MANAGER, clock=clock)
        yield Ground(plan, up=up, kube=kube, plane=plane)


def _workload(node: str) -> Object:
    labels = {"app": f"work-{node}"}
    container = {
        "name": WORK,
        "image": "registry.example/train:1",
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
    }
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"work-{node}", "namespace": WORKLOADS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
