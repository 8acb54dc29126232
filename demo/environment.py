"""Everything that runs in the demo, up and down: the bus, the cluster, our services, machines.

Services are started by the programs of production, each under its own account and its own key.
Must not know what is played on it.
"""

import asyncio
import os
import random as chance
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from demo import keys
from demo.admin import MANAGER, USER
from demo.folder import guarded_folder
from demo.node_agents import AGENT_KINDS
from demo.paths import KILL_AGENTS_SIGNAL, NAMESPACE, DemoPaths, kubelet_users, service_account
from demo.process_group import ProcessGroup
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus
from libs.bus.nats.bus import connect as join
from libs.contracts.identities import Identity, Writer
from libs.kube.client import Kube
from libs.kube.config import open_transport
from libs.runtime.clock import Clock, SystemClock
from libs.testing.env import make_env
from libs.testing.nats import NatsServer

SIMULATOR = "demo.simulator"
_ROOM = 64 * 2**20
"""Bytes; eight machines take a quarter of it."""
CLUSTER = "cluster"
_IMAGES = ("discovery", "driver", "validator", "telemetry")


class ServiceRole(msgspec.Struct, frozen=True):
    """A service's cluster role: under which name, and by which program."""

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

KILLABLE = (*(part.writer for part in SERVICES), *AGENT_KINDS)
"""What can be killed by name: cluster roles, and the agents of a machine."""


class DemoEnvironment:
    """What is up, and the ways in for people."""

    def __init__(
        self,
        paths: DemoPaths,
        *,
        processes: ProcessGroup,
        nats: NatsServer,
        clock: Clock,
        seed: int,
    ) -> None:
        self.paths = paths
        self.processes = processes
        self.nats = nats
        self.clock = clock
        self.seed = seed

    async def start_cluster(self, nodes: Sequence[str]) -> None:
        """The cluster, without any machine and any service."""
        users = {USER, *(service_account(part.writer) for part in SERVICES)}
        users |= {user for node in nodes for user in kubelet_users(node)}
        await self.processes.start(
            CLUSTER,
            SIMULATOR,
            "cluster",
            folder=str(self.paths.folder),
            users=",".join(sorted(users)),
            seed=str(self.seed),
        )
        await self.processes.wait_ready(CLUSTER)

    async def start_service(self, part: ServiceRole) -> None:
        """Start a service's cluster role."""
        told = {
            "namespace": NAMESPACE,
            "kubeconfig": str(self.paths.kubeconfig(service_account(part.writer))),
            "pod_name": f"{part.writer}-1",
            "nats_url": self.nats.url,
            "nats_nkey_seed_file": str(self.paths.key(Identity(writer=part.writer))),
        }
        if part.writer is Writer.DRIVER_CLUSTER:
            told |= {f"images_{name}": f"registry.example/sluice/{name}:demo" for name in _IMAGES}
            told["agent_env"] = f"SLUICE_NATS_URL={self.nats.url}"
        await self.processes.start(part.writer, part.module, part.role, **told)

    async def start_machine(self, node: str) -> None:
        """Start a machine; it has a port for the metrics of its GPUs."""
        await self.processes.start(
            node,
            SIMULATOR,
            "machine",
            folder=str(self.paths.folder),
            node=node,
            nats_url=self.nats.url,
            seed=str(self.seed),
        )
        await self.processes.wait_ready(node)

    async def kill(self, name: str, *, node: str) -> None:
        """With -9: a service's cluster role, or the agent of this name on that machine."""
        if name in self.processes.processes:
            await self.processes.kill(name)
        else:
            await asyncio.to_thread(self.paths.kill_list(node).write_text, name)
            self.processes.processes[node].child.send_signal(KILL_AGENTS_SIGNAL)


@asynccontextmanager
async def demo_environment(nodes: Sequence[str], *, seed: int) -> AsyncGenerator[DemoEnvironment]:
    """With bus and cluster up. At the end nothing is left: no process, no port, no file."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(guarded_folder("sluice-demo-", room=_ROOM))
        places = DemoPaths(folder)
        for name in ("users", "keys", "machines", "oddities", "to-die"):
            (places.folder / name).mkdir()
        config = keys.write_keys(places, nodes)
        nats = await stack.enter_async_context(NatsServer(config=config, within=folder))
        crew = await stack.enter_async_context(ProcessGroup(os.environ))
        up = DemoEnvironment(places, processes=crew, nats=nats, clock=clock, seed=seed)
        await up.start_cluster(nodes)
        yield up


@asynccontextmanager
async def kube_client(up: DemoEnvironment) -> AsyncGenerator[Kube]:
    """A client of the API server for a person."""
    transport = await open_transport(clock=up.clock, kubeconfig=up.paths.kubeconfig(USER))
    async with transport:
        yield Kube(transport, manager=MANAGER, clock=up.clock)


@asynccontextmanager
async def bus_client(up: DemoEnvironment, writer: Writer = Writer.CTL) -> AsyncGenerator[NatsBus]:
    """A connection to the bus: for a person, to read what happens and to ask."""
    identity = Identity(writer=writer)
    key = Credentials(nkey_seed_file=str(up.paths.key(identity)))
    async with join(
        url=up.nats.url,
        identity=identity,
        env=make_env(clock=up.clock, random=chance.Random(up.seed)),
        credentials=key,
    ) as bus:
        yield bus
