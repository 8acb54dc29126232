"""Start and stop of everything that runs in the demo: bus, cluster, services and machines.

Services run as their production programs, each with its own service account, and sign in to NATS
with its tokens.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from demo.admin import MANAGER, USER, DemoAdmin
from demo.fleet import Fleet
from demo.node_agents import AGENT_KINDS
from demo.paths import (
    FOLDERS,
    KILL_AGENTS_SIGNAL,
    NAMESPACE,
    DemoPaths,
    guarded_folder,
    kubelet_users,
    service_account,
)
from demo.process_group import ManagedProcess, ProcessGroup
from demo.real import install_on, real_plane, write_revisions
from demo.tokens import request_token
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.ctl.options import Access
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.runtime.clock import Clock, SystemClock
from libs.testing.child_process import HOST
from libs.testing.nats import NatsServer
from libs.testing.realkube.cluster import RealKube
from libs.testing.sign_in import SignInKeys
from libs.testing.simulation import make_env

SIMULATOR = "demo.simulator"
_DISK_SPACE = 128 * 2**20
"""Bytes; a dozen machines take a quarter of it."""
SHARE = 6
"""Machines in one process."""
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

SIGN_IN = ServiceRole(Writer.SIGN_IN, "services.signin", "server")
"""Admits the others to NATS. It is started first: without it none of them connects."""

KILLABLE = (*(service.writer for service in SERVICES), *AGENT_KINDS)
"""The names that `--kill` accepts: cluster roles, and the agents of a machine."""


class DemoEnvironment(msgspec.Struct, frozen=True):
    """The running processes, and the paths and addresses by which to reach them."""

    paths: DemoPaths
    processes: ProcessGroup
    nats: NatsServer
    sign_in: SignInKeys
    clock: Clock
    seed: int
    speed: float = 1.0
    nvml: str = ""
    """The folder of the library that shows the GPUs of one machine in each process; empty: all are
    in memory.
    """
    plane: RealKube | None = None
    """The real control plane; None: the API server is simulated."""

    @property
    def audit_log(self) -> Path:
        """The audit log of the API server, whichever it is."""
        return self.paths.audit_log if self.plane is None else self.plane.audit_log

    async def start_cluster(self, nodes: Sequence[str]) -> None:
        users = {USER, *(service_account(each.writer) for each in (SIGN_IN, *SERVICES))}
        users |= {user for node in nodes for user in kubelet_users(node)}
        await self._start_simulator(CLUSTER, "cluster", users=",".join(sorted(users)))

    async def install(self, admin: DemoAdmin) -> None:
        """Install Sluice's definitions, accounts and leases, and start sign-in."""
        if self.plane is None:
            await admin.install()
        else:
            writers = [service.writer for service in (SIGN_IN, *SERVICES)]
            await install_on(self.plane, admin, self.paths, writers=writers, clock=self.clock)
        await self.start_sign_in(admin)

    async def start_sign_in(self, admin: DemoAdmin) -> None:
        """Start sign-in, and give services and people their tokens.

        Their accounts must exist, for a token is an account's. It is ready before any token is
        given out: a client that asks a server without sign-in waits for ten seconds.
        """
        await self._start_program(SIGN_IN, **self.sign_in.files)
        await self.processes.wait_ready(SIGN_IN.writer)
        for service in SERVICES:
            pod = await admin.create_pod(service.writer)
            await request_token(admin, self.paths, Identity(writer=service.writer), pod=pod)
        await request_token(admin, self.paths, Identity(writer=Writer.CTL))

    async def end(self) -> None:
        """End all processes; then the journals of the run are complete."""
        await self.processes.end()
        if self.plane is not None:
            log, file = self.plane.audit_log, self.paths.revisions
            await asyncio.to_thread(write_revisions, log, file)

    def shares_of(self, fleet: Fleet) -> list[dict[str, str]]:
        """Divide the machines among processes: the pools of each share by node."""
        pools = list(fleet.pool_of.items())
        return [dict(pools[start : start + SHARE]) for start in range(0, len(pools), SHARE)]

    async def start_service(self, service: ServiceRole) -> None:
        settings = {
            "pod_name": f"{service.writer}-1",
            "nats_token_file": str(self.paths.token(Identity(writer=service.writer))),
        }
        if service.writer is Writer.DRIVER_CLUSTER:
            settings |= {
                f"images_{name}": f"registry.example/sluice/{name}:demo" for name in _IMAGES
            }
            settings["agent_env"] = f"SLUICE_NATS_URL={self.nats.url}"
        if service.writer is Writer.TELEMETRY_CLUSTER:
            settings |= {"exporter_host": HOST, "exporter_port": "0"}
        await self._start_program(service, **settings)

    async def _start_program(self, service: ServiceRole, **settings: str) -> None:
        settings |= {
            "namespace": NAMESPACE,
            "kubeconfig": str(self.paths.kubeconfig(service_account(service.writer))),
            "nats_url": self.nats.url,
        }
        await self.processes.start(
            service.writer, service.module, service.role, restarts=True, **settings
        )

    async def start_machine(self, node: str) -> None:
        """Start a machine that belongs to no pool by a label."""
        await self.start_machines({node: ""})

    async def start_machines(self, pools: Mapping[str, str]) -> None:
        """Start machines in one process; `pools` are their pools by name."""
        name = ",".join(pools)
        await self._start_simulator(
            name,
            "machines",
            nodes=name,
            pools=",".join(filter(None, pools.values())),
            nats_url=self.nats.url,
            nvml=self.nvml,
            speed=str(self.speed),
        )

    def process_of(self, node: str) -> ManagedProcess:
        """Return the process that simulates a machine."""
        processes = self.processes.processes.items()
        return next(process for name, process in processes if node in name.split(","))

    def pages_of_gpus(self, node: str) -> str:
        """Return the address of the metrics of a machine's GPUs."""
        return self.process_of(node).exporter_url_of(node)

    async def _start_simulator(self, name: str, role: str, **settings: str) -> None:
        settings |= {"folder": str(self.paths.folder), "seed": str(self.seed)}
        await self.processes.start(name, SIMULATOR, role, restarts=False, **settings)
        await self.processes.wait_ready(name)

    async def kill(self, name: str, *, node: str) -> None:
        """Kill with SIGKILL a cluster role, or the agent of this name on `node`."""
        if name in self.processes.processes:
            await self.processes.kill(name)
        else:
            await asyncio.to_thread(self.paths.kill_list(node).write_text, name)
            self.process_of(node).child.send_signal(KILL_AGENTS_SIGNAL)


@asynccontextmanager
async def demo_environment(
    nodes: Sequence[str],
    *,
    seed: int,
    speed: float = 1.0,
    nvml: str = "",
    is_real: bool = False,
) -> AsyncGenerator[DemoEnvironment]:
    """Start bus and cluster; at the end leave no process, port or file behind.

    The folder is entered first, so that it is removed last: processes write into it until they end.
    The processes are entered after NATS, so that none of them sees it go.

    `is_real`: with the control plane of `make kube`.
    """
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(guarded_folder("sluice-demo-", room=_DISK_SPACE))
        paths = DemoPaths(folder)
        for name in FOLDERS:
            (paths.folder / name).mkdir()
        sign_in = SignInKeys(paths.keys)
        config = sign_in.config(identities=len(nodes) * len(COMPONENTS))
        plane = await stack.enter_async_context(real_plane(paths, nodes)) if is_real else None
        nats = await stack.enter_async_context(NatsServer(config=config, within=folder))
        processes = await stack.enter_async_context(ProcessGroup(os.environ))
        up = DemoEnvironment(
            paths,
            processes=processes,
            nats=nats,
            sign_in=sign_in,
            clock=clock,
            seed=seed,
            speed=speed,
            nvml=nvml,
            plane=plane,
        )
        if plane is None:
            await up.start_cluster(nodes)
        yield up


@asynccontextmanager
async def kube_client(up: DemoEnvironment) -> AsyncGenerator[Kube]:
    """Connect to the API server as the administrator."""
    transport = await open_transport(clock=up.clock, kubeconfig=up.paths.kubeconfig(USER))
    async with transport:
        yield Kube(transport, manager=MANAGER, clock=up.clock)


def person_access(up: DemoEnvironment) -> Access:
    """Return how `sluice` reaches the cluster and the bus with the rights of a person."""
    return Access(
        kubeconfig=str(up.paths.kubeconfig(USER)),
        namespace=NAMESPACE,
        nats=up.nats.url,
        token_file=str(up.paths.token(Identity(writer=Writer.CTL))),
    )


@asynccontextmanager
async def bus_client(up: DemoEnvironment, writer: Writer = Writer.CTL) -> AsyncGenerator[NatsBus]:
    """Connect to the bus, by default with the rights of a person."""
    identity = Identity(writer=writer)
    token = Credentials(token_file=str(up.paths.token(identity)))
    async with connect(
        url=up.nats.url,
        identity=identity,
        env=make_env(clock=up.clock, random=random.Random(up.seed)),
        credentials=token,
    ) as bus:
        yield bus
