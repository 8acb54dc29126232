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
from demo.crew import Crew
from demo.folder import guarded_folder
from demo.person import MANAGER, USER
from demo.places import AGENTS_DIE, NAMESPACE, Places, account, kubelet_users
from demo.station_agents import KINDS
from libs.bus.credentials import Credentials
from libs.bus.nats import NatsBus
from libs.bus.nats import connect as join
from libs.contracts.identities import Identity, Writer
from libs.kube.client import Kube
from libs.kube.config import connect
from libs.runtime.clock import Clock, SystemClock
from libs.testing.nats import NatsServer

PARTS = "demo.parts"
_ROOM = 64 * 2**20
"""Bytes; eight machines take a quarter of it."""
CLUSTER = "cluster"
_IMAGES = ("discovery", "driver", "validator", "telemetry")


class Part(msgspec.Struct, frozen=True):
    """A service's cluster role: under which name, and by which program."""

    writer: Writer
    module: str
    role: str = "cluster"


SERVICES = (
    Part(Writer.SCHEDULER, "services.scheduler", "scheduler"),
    Part(Writer.DISCOVERY_CLUSTER, "services.discovery"),
    Part(Writer.DRIVER_CLUSTER, "services.driver"),
    Part(Writer.VALIDATOR_CLUSTER, "services.validator"),
    Part(Writer.TELEMETRY_CLUSTER, "services.telemetry"),
)

KILLABLE = (*(part.writer for part in SERVICES), *KINDS)
"""What can be killed by name: cluster roles, and the agents of a machine."""


class Premises:
    """What is up, and the ways in for people."""

    def __init__(
        self, places: Places, *, crew: Crew, nats: NatsServer, clock: Clock, seed: int
    ) -> None:
        self.places = places
        self.crew = crew
        self.nats = nats
        self.clock = clock
        self.seed = seed

    async def open(self, nodes: Sequence[str]) -> None:
        """The cluster, without any machine and any service."""
        users = {USER, *(account(part.writer) for part in SERVICES)}
        users |= {user for node in nodes for user in kubelet_users(node)}
        await self.crew.start(
            CLUSTER,
            PARTS,
            "cluster",
            folder=str(self.places.folder),
            users=",".join(sorted(users)),
            seed=str(self.seed),
        )
        await self.crew.ready(CLUSTER)

    async def serve(self, part: Part) -> None:
        """Start a service's cluster role."""
        told = {
            "namespace": NAMESPACE,
            "kubeconfig": str(self.places.kubeconfig(account(part.writer))),
            "pod_name": f"{part.writer}-1",
            "nats_url": self.nats.url,
            "nats_nkey_seed_file": str(self.places.key(Identity(writer=part.writer))),
        }
        if part.writer is Writer.DRIVER_CLUSTER:
            told |= {f"images_{name}": f"registry.example/sluice/{name}:demo" for name in _IMAGES}
            told["agent_env"] = f"SLUICE_NATS_URL={self.nats.url}"
        await self.crew.start(part.writer, part.module, part.role, **told)

    async def switch_on(self, node: str) -> None:
        """Start a machine; it has a port for the metrics of its GPUs."""
        await self.crew.start(
            node,
            PARTS,
            "machine",
            folder=str(self.places.folder),
            node=node,
            nats_url=self.nats.url,
            seed=str(self.seed),
        )
        await self.crew.ready(node)

    async def kill(self, name: str, *, node: str) -> None:
        """With -9: a service's cluster role, or the agent of this name on that machine."""
        if name in self.crew.workers:
            await self.crew.kill(name)
        else:
            await asyncio.to_thread(self.places.to_die(node).write_text, name)
            self.crew.workers[node].child.tell(AGENTS_DIE)


@asynccontextmanager
async def premises(nodes: Sequence[str], *, seed: int) -> AsyncGenerator[Premises]:
    """With bus and cluster up. At the end nothing is left: no process, no port, no file."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(guarded_folder("sluice-demo-", room=_ROOM))
        places = Places(folder)
        for name in ("users", "keys", "machines", "oddities", "to-die"):
            (places.folder / name).mkdir()
        config = keys.hand_out(places, nodes)
        nats = await stack.enter_async_context(NatsServer(config=config, within=folder))
        crew = await stack.enter_async_context(Crew(os.environ))
        up = Premises(places, crew=crew, nats=nats, clock=clock, seed=seed)
        await up.open(nodes)
        yield up


@asynccontextmanager
async def person_at(up: Premises) -> AsyncGenerator[Kube]:
    """A client of the API server for a person."""
    transport = await connect(clock=up.clock, kubeconfig=up.places.kubeconfig(USER))
    async with transport:
        yield Kube(transport, manager=MANAGER, clock=up.clock)


@asynccontextmanager
async def listening_at(up: Premises, writer: Writer = Writer.CTL) -> AsyncGenerator[NatsBus]:
    """A connection to the bus: for a person, to read what happens and to ask."""
    identity = Identity(writer=writer)
    key = Credentials(nkey_seed_file=str(up.places.key(identity)))
    async with join(
        url=up.nats.url,
        identity=identity,
        clock=up.clock,
        random=chance.Random(up.seed),
        credentials=key,
    ) as bus:
        yield bus
