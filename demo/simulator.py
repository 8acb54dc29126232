"""The programs of the simulated cluster and of a simulated machine: `python -m demo.simulator`.

The cluster is an API server over HTTP with Kubernetes' controllers. A machine has files, kernel,
GPUs, kubelet, and Sluice's agents. They communicate over NATS and HTTP, as real ones.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from demo.node import SimulatedNode
from demo.paths import KILL_AGENTS_SIGNAL, DemoPaths, kubelet_users
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect as connect_nats
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.forecast.world import ProcessEnd
from libs.host.machine import ThreadOffload
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.http import HttpTransport
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.http import HttpServer, HttpSettings, Page
from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import HOST
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.machines.library_machine import LibraryMachine
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.nvml import VARIABLE
from libs.testing.stage.worlds import MachineModel, SteadyWorld

SCALE: Final = "A real driver takes minutes to build and load; here everything takes seconds."

READINGS_INTERVAL: Final = 1.0
"""Seconds between two changes of the GPUs' readings."""
_CONNECT_SECONDS: Final = 60.0
_EXPORTER_PATHS: Final = ("/", "/metrics", "/health")
_NO_AGENT: Final = Page(
    b"no telemetry agent runs on this machine now; try again later\n", status=503
)

Pages = Mapping[str, Callable[[], Page]]

_log = logger()


class ClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    folder: Path
    users: tuple[str, ...]
    """A kubeconfig is written for each."""
    seed: int = 0


async def start_cluster(process: Process[ClusterSettings], service: Service) -> None:
    await service.enter("cluster", _cluster(process))


@asynccontextmanager
async def _cluster(process: Process[ClusterSettings]) -> AsyncGenerator[None]:
    settings, clock = process.settings, process.env.clock
    paths = DemoPaths(settings.folder)
    env = msgspec.structs.replace(process.env, random=random.Random(settings.seed))
    # Keep revisions in the file: the demo reads them after this process has ended.
    with RevisionJournal(spill=paths.revisions, keeps=1) as journal:
        server = ApiServer(
            clock=clock, ids=env.ids, random=env.random, journal=journal, rules=CEL_RULES
        )

        def kube_for(user: str, manager: str) -> Kube:
            return Kube(server.transport(user=user), manager=manager, clock=clock)

        cluster = SimulatedCluster(kube_for, model=SteadyWorld(), env=env)
        async with serve_http(server) as endpoint:
            for user in settings.users:
                endpoint.kubeconfig(paths.users, user)
            async with cluster:
                _log.info("api server started", url=endpoint.url)
                yield
            await server.stop()


class DemoWorld(SteadyWorld, frozen=True, kw_only=True):
    """A steady world in which the drivers whose labels the file `bad` lists fail to load."""

    bad: Path

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        end = super().load(node, driver, attempt)
        bad_drivers = self.bad.read_text().split() if self.bad.exists() else ()
        return ProcessEnd(end.after, exit_code=1) if driver in bad_drivers else end


def demo_world(seed: int, *, bad: Path) -> DemoWorld:
    """Return a world in which everything takes seconds instead of minutes."""
    return DemoWorld(
        seed=seed,
        bad=bad,
        jitter=0.5,
        pull_seconds=1.0,
        init_seconds=0.5,
        ready_seconds=0.5,
        stop_seconds=1.0,
        job_seconds=25.0,
        unload_seconds=1.0,
        load_seconds=5.0,
        validation_seconds=2.0,
        boot_seconds=10.0,
    )


class GpuExporter:
    """Serve the pages of the telemetry agent at one port, while agents come and go."""

    def __init__(self) -> None:
        self._pages: Pages = {}
        pages = {path: partial(self._page, path) for path in _EXPORTER_PATHS}
        self.server = HttpServer(HttpSettings(host=HOST, port=0), pages)

    @asynccontextmanager
    async def serve(self, pages: Pages) -> AsyncGenerator[None]:
        """Serve an agent's pages until its end, or until the next agent serves its own."""
        self._pages = pages
        try:
            yield
        finally:
            if self._pages is pages:
                self._pages = {}

    def _page(self, path: str) -> Page:
        render = self._pages.get(path)
        return _NO_AGENT if render is None else render()


class MachineSettings(ProcessSettings, frozen=True, kw_only=True):
    folder: Path
    node: str
    nats_url: str
    seed: int = 0
    nvml: str = ""
    """The folder of a stand-in for NVML that agents read; empty: the GPUs are in memory."""


async def start_machine(process: Process[MachineSettings], service: Service) -> None:
    settings, clock = process.settings, process.env.clock
    paths = DemoPaths(settings.folder)
    seed = f"{settings.seed}/{settings.node}"
    env = msgspec.structs.replace(process.env, random=random.Random(seed))
    model = demo_world(settings.seed, bad=paths.bad_drivers)
    machine = _make_machine(paths, settings, service, model=model, env=env)
    transports = dict[str, HttpTransport]()
    for user in kubelet_users(settings.node):
        transport = await open_transport(clock=clock, kubeconfig=paths.kubeconfig(user))
        transports[user] = await service.enter(f"kube as {user}", transport)

    def kube_for(user: str, manager: str) -> Kube:
        return Kube(transports[user], manager=manager, clock=clock)

    async def connect(agent: Service, identity: Identity) -> Bus:
        connection = connect_nats(
            url=settings.nats_url,
            identity=identity,
            env=env,
            credentials=Credentials(nkey_seed_file=str(paths.key(identity))),
            wait=_CONNECT_SECONDS,
        )
        bus = await agent.enter("nats", connection)
        agent.run_forever("nats", bus.guard())
        return bus

    exporter = GpuExporter()
    _, port = (await service.enter("exporter", exporter.server)).address
    _log.info("exporter started", port=port)
    node = SimulatedNode(
        machine,
        kube_for=kube_for,
        connect=connect,
        serve_pages=exporter.serve,
        model=model,
        access=await service.enter("disk", ThreadOffload("disk")),
        env=process.env,
        random_for=lambda name: random.Random(f"{seed}/{name}"),
    )
    await service.enter("incidents", _write_incidents(machine, paths.incidents(settings.node)))
    service.run_forever("node", node.run())
    service.run_forever("kills", _kill_agents(node, paths.kill_list(settings.node)))


def _make_machine(
    paths: DemoPaths, settings: MachineSettings, service: Service, *, model: MachineModel, env: Env
) -> SimulatedMachine:
    root, name = paths.machine(settings.node), settings.node
    if not settings.nvml:
        return SimulatedMachine(root, name=name, model=model, env=env)
    state = paths.gpus(name)
    os.environ[VARIABLE] = str(state)
    library = Path(settings.nvml)
    machine = LibraryMachine(root, state=state, library=library, name=name, model=model, env=env)
    service.run_forever("readings", _show_readings(machine, env.clock))
    return machine


async def _show_readings(machine: LibraryMachine, clock: Clock) -> None:
    while True:
        machine.show_readings()
        await clock.sleep(READINGS_INTERVAL)


async def _kill_agents(node: SimulatedNode, file: Path) -> None:
    requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(KILL_AGENTS_SIGNAL, requested.set)
    while True:
        await requested.wait()
        requested.clear()
        for name in (await asyncio.to_thread(file.read_text)).split():
            node.kill(Writer(name))


@asynccontextmanager
async def _write_incidents(machine: SimulatedMachine, file: Path) -> AsyncGenerator[None]:
    """Write the incidents to a file at the end, for the verdict."""
    yield
    lines = "".join(f"{incident}\n" for incident in machine.incidents)
    await asyncio.to_thread(file.write_text, lines)


if __name__ == "__main__":
    run_program(
        "demo",
        {
            "cluster": Role(ClusterSettings, start_cluster),
            "machine": Role(MachineSettings, start_machine),
        },
    )
