"""Start and stop of everything that runs in the demo: bus, cluster, services and machines.

Services run as their production programs, each with its own service account and NATS key.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from demo.admin import MANAGER, USER
from demo.node_agents import AGENT_KINDS
from demo.paths import (
    KILL_AGENTS_SIGNAL,
    NAMESPACE,
    DemoPaths,
    guarded_folder,
    kubelet_users,
    service_account,
    write_keys,
)
from demo.process_group import ProcessGroup
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.contracts.identities import Identity, Writer
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.runtime.clock import Clock, SystemClock
from libs.testing.child_process import HOST
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

SIMULATOR = "demo.simulator"
_DISK_SPACE = 64 * 2**20
"""Bytes; eight machines take a quarter of it."""
CLUSTER = "cluster"
_IMAGES = ("discovery", "driver", "validator", "telemetry")


class ServiceRole(msgspec.Struct, frozen=True):
    """The cluster role of a service, and the module that runs it."""

    writer: Writer
    module: str
    role: str = "cluster"


SERVICES = (
    ServiceRole(Writer.SCHEDULER, "services.scheduler", "scheduler"),
    ServiceRole(Writer.DISCOVERY_CLUSTER, "services.discovery"),
    ServiceRole(Writer.DRIVER_CLUSTER, "services.driver"),
    ServiceRole(Writer.VALIDATOR_CLUSTER, "services.validator"),
    ServiceRole(Writer.TELEMETRY_CLUSTER, "services.telemetry"),
)

KILLABLE = (*(service.writer for service in SERVICES), *AGENT_KINDS)
"""The names that `--kill` accepts: cluster roles, and the agents of a machine."""


class DemoEnvironment(msgspec.Struct, frozen=True):
    """The running processes, and the paths and addresses by which to reach them."""

    paths: DemoPaths
    processes: ProcessGroup
    nats: NatsServer
    clock: Clock
    seed: int
    nvml: str = ""
    """The folder of the library that shows the GPUs of machines; empty: they are in memory."""

    async def start_cluster(self, nodes: Sequence[str]) -> None:
        users = {USER, *(service_account(service.writer) for service in SERVICES)}
        users |= {user for node in nodes for user in kubelet_users(node)}
        await self._start_simulator(CLUSTER, "cluster", users=",".join(sorted(users)))

    async def start_service(self, service: ServiceRole) -> None:
        settings = {
            "namespace": NAMESPACE,
            "kubeconfig": str(self.paths.kubeconfig(service_account(service.writer))),
            "pod_name": f"{service.writer}-1",
            "nats_url": self.nats.url,
            "nats_nkey_seed_file": str(self.paths.key(Identity(writer=service.writer))),
        }
        if service.writer is Writer.DRIVER_CLUSTER:
            settings |= {
                f"images_{name}": f"registry.example/sluice/{name}:demo" for name in _IMAGES
            }
            settings["agent_env"] = f"SLUICE_NATS_URL={self.nats.url}"
        if service.writer is Writer.TELEMETRY_CLUSTER:
            settings |= {"exporter_host": HOST, "exporter_port": "0"}
        await self.processes.start(service.writer, service.module, service.role, **settings)

    async def start_machine(self, node: str) -> None:
        settings = {"node": node, "nats_url": self.nats.url, "nvml": self.nvml}
        await self._start_simulator(node, "machine", **settings)

    async def _start_simulator(self, name: str, role: str, **settings: str) -> None:
        settings |= {"folder": str(self.paths.folder), "seed": str(self.seed)}
        await self.processes.start(name, SIMULATOR, role, **settings)
        await self.processes.wait_ready(name)

    async def kill(self, name: str, *, node: str) -> None:
        """Kill with SIGKILL a cluster role, or the agent of this name on `node`."""
        if name in self.processes.processes:
            await self.processes.kill(name)
        else:
            await asyncio.to_thread(self.paths.kill_list(node).write_text, name)
            self.processes.processes[node].child.send_signal(KILL_AGENTS_SIGNAL)


@asynccontextmanager
async def demo_environment(
    nodes: Sequence[str], *, seed: int, nvml: str = ""
) -> AsyncGenerator[DemoEnvironment]:
    """Start bus and cluster; at the end leave no process, port or file behind."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(guarded_folder("sluice-demo-", room=_DISK_SPACE))
        paths = DemoPaths(folder)
        for name in ("users", "keys", "machines", "gpus", "incidents", "kill-lists"):
            (paths.folder / name).mkdir()
        config = write_keys(paths, nodes)
        nats = await stack.enter_async_context(NatsServer(config=config, within=folder))
        processes = await stack.enter_async_context(ProcessGroup(os.environ))
        up = DemoEnvironment(
            paths, processes=processes, nats=nats, clock=clock, seed=seed, nvml=nvml
        )
        await up.start_cluster(nodes)
        yield up


@asynccontextmanager
async def kube_client(up: DemoEnvironment) -> AsyncGenerator[Kube]:
    """Connect to the API server as the administrator."""
    transport = await open_transport(clock=up.clock, kubeconfig=up.paths.kubeconfig(USER))
    async with transport:
        yield Kube(transport, manager=MANAGER, clock=up.clock)


@asynccontextmanager
async def bus_client(up: DemoEnvironment, writer: Writer = Writer.CTL) -> AsyncGenerator[NatsBus]:
    """Connect to the bus, by default with the rights of a person."""
    identity = Identity(writer=writer)
    key = Credentials(nkey_seed_file=str(up.paths.key(identity)))
    async with connect(
        url=up.nats.url,
        identity=identity,
        env=make_env(clock=up.clock, random=random.Random(up.seed)),
        credentials=key,
    ) as bus:
        yield bus
