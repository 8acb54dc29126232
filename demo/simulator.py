"""The programs of the simulated cluster and of simulated machines: `python -m demo.simulator`.

The cluster is an API server over HTTP with Kubernetes' controllers. A machine has files, kernel,
GPUs, kubelet, and Sluice's agents. They communicate over NATS and HTTP, as real ones.
"""

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from demo.admin import DemoAdmin
from demo.fleet import POOL_LABEL
from demo.node import SimulatedNode
from demo.paths import KILL_AGENTS_SIGNAL, DemoPaths, kubelet_users
from demo.pod_logs import LogServer
from demo.tokens import token_of_pod
from demo.world import BACK_OFF, demo_world
from libs.bus.nats.bus import connect as connect_nats
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.host.gpus.process import NvmlProcess
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
from libs.testing.apiserver.audit_log import AuditLog
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.child_process import HOST
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.kubelet.fleet import KubeFor
from libs.testing.cluster.views import Pod
from libs.testing.machines.library_machine import LibraryMachine
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.nvml import VARIABLE
from libs.testing.stage.worlds import MachineModel, SteadyWorld

READINGS_INTERVAL: Final = 1.0
"""Seconds between two changes of the GPUs' readings."""
NVML_MODULE: Final = "libs.host.gpus.child"
_JOBS_INTERVAL: Final = 0.5
"""Seconds between two looks at which jobs are done."""
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
    with (
        RevisionJournal(spill=paths.revisions, keeps=1) as journal,
        AuditLog(paths.audit_log) as audit_log,
    ):
        server = LogServer(
            clock=clock,
            ids=env.ids,
            random=env.random,
            journal=journal,
            audit_log=audit_log,
            rules=CEL_RULES,
            logs=paths.container_log,
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


class MachinesSettings(ProcessSettings, frozen=True, kw_only=True):
    folder: Path
    nodes: tuple[str, ...]
    pools: tuple[str, ...] = ()
    """The pool of each node; none: its Node has no label of a pool."""
    nats_url: str
    seed: int = 0
    speed: float = 1.0
    """The speed of everything on the machines, in multiples of the usual one."""
    nvml: str = ""
    """The folder of a stand-in for NVML, which the agents of the first machine read."""


async def start_machines(process: Process[MachinesSettings], service: Service) -> None:
    """Start machines, each of them with its own files, kernel, kubelet and agents."""
    settings, clock = process.settings, process.env.clock
    paths = DemoPaths(settings.folder)
    transports = dict[str, HttpTransport]()
    for user in sorted({user for node in settings.nodes for user in kubelet_users(node)}):
        transport = await open_transport(clock=clock, kubeconfig=paths.kubeconfig(user))
        transports[user] = await service.enter(f"kube as {user}", transport)

    def kube_for(user: str, manager: str) -> Kube:
        return Kube(transports[user], manager=manager, clock=clock)

    pools = dict(zip(settings.nodes, settings.pools, strict=False))
    nodes = [
        await _start_machine(process, service, name, pools.get(name, ""), kube_for=kube_for)
        for name in settings.nodes
    ]
    service.run_forever("kills", _kill_agents(nodes, paths))
    service.run_forever("jobs", _finish_jobs(nodes, paths, clock))


async def _start_machine(
    process: Process[MachinesSettings],
    service: Service,
    name: str,
    pool: str,
    *,
    kube_for: KubeFor,
) -> SimulatedNode:
    settings = process.settings
    paths = DemoPaths(settings.folder)
    seed = f"{settings.seed}/{name}"
    env = msgspec.structs.replace(process.env, random=random.Random(seed))
    model = demo_world(settings.seed, bad=paths.bad_drivers, speed=settings.speed)
    machine = _make_machine(paths, settings, service, name=name, model=model, env=env)
    machine.on_log(partial(_write_log, paths))

    kubelet = DemoAdmin(kube_for(kubelet_users(name)[0], "kubelet"))

    async def connect(agent: Service, identity: Identity, pod: Pod) -> Bus:
        connection = connect_nats(
            url=settings.nats_url,
            identity=identity,
            env=env,
            credentials=await token_of_pod(kubelet, paths, identity, pod),
            wait=_CONNECT_SECONDS,
        )
        bus = await agent.enter("nats", connection)
        agent.run_forever("nats", bus.guard())
        return bus

    exporter = GpuExporter()
    _, port = (await service.enter(f"exporter of {name}", exporter.server)).address
    _log.info("exporter started", node=name, port=port)
    node = SimulatedNode(
        machine,
        kube_for=kube_for,
        connect=connect,
        serve_pages=exporter.serve,
        model=model,
        access=await service.enter(f"disk of {name}", ThreadOffload(f"disk of {name}")),
        env=process.env,
        random_for=lambda what: random.Random(f"{seed}/{what}"),
        labels={POOL_LABEL: pool} if pool else {},
        back_off=BACK_OFF / settings.speed,
    )
    await service.enter(f"incidents on {name}", _write_incidents(machine, paths.incidents(name)))
    service.run_forever(name, node.run())
    return node


def _make_machine(
    paths: DemoPaths,
    settings: MachinesSettings,
    service: Service,
    *,
    name: str,
    model: MachineModel,
    env: Env,
) -> SimulatedMachine:
    root = paths.machine(name)
    if not settings.nvml or name != settings.nodes[0]:
        return SimulatedMachine(root, name=name, model=model, env=env)
    state = paths.gpus(name)
    # Each agent's NVML process sees the GPUs of its own machine.
    command = ("/usr/bin/env", f"{VARIABLE}={state}", sys.executable, "-m", NVML_MODULE)
    machine = LibraryMachine(
        root,
        state=state,
        library=Path(settings.nvml),
        start=partial(NvmlProcess, command=command),
        name=name,
        model=model,
        env=env,
    )
    service.run_forever(f"readings of {name}", _show_readings(machine, env.clock))
    return machine


async def _show_readings(machine: LibraryMachine, clock: Clock) -> None:
    while True:
        machine.show_readings()
        await clock.sleep(READINGS_INTERVAL)


def _write_log(paths: DemoPaths, container_id: str, line: str) -> None:
    path = paths.driver_log(container_id)
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(f"{line}\n")


async def _kill_agents(nodes: Sequence[SimulatedNode], paths: DemoPaths) -> None:
    """Kill the agents that the lists of these nodes name, each list once."""
    requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(KILL_AGENTS_SIGNAL, requested.set)
    while True:
        await requested.wait()
        requested.clear()
        for node in nodes:
            for name in await asyncio.to_thread(_take, paths.kill_list(node.machine.name)):
                node.kill(Writer(name))


def _take(list_file: Path) -> list[str]:
    """Return the words of a file, and remove it."""
    try:
        words = list_file.read_text().split()
    except FileNotFoundError:
        return []
    list_file.unlink()
    return words


async def _finish_jobs(nodes: Sequence[SimulatedNode], paths: DemoPaths, clock: Clock) -> None:
    while True:
        await clock.sleep(_JOBS_INTERVAL)
        for node in nodes:
            for name in await asyncio.to_thread(_take, paths.finished_jobs(node.machine.name)):
                node.finish(name)


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
            "machines": Role(MachinesSettings, start_machines),
        },
    )
