"""The services' programs as child processes, with a NATS server and a simulated API server."""

import random
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from libs.bus.nats.bus import connect
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS
from libs.kube.client import Kube
from libs.kube.resources import LEASES, NAMESPACES
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import ChildProcess, bytecode_environ
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

NAMESPACE = "here"
NOTHING: Mapping[str, str] = {}
ENVIRON = {
    "SLUICE_METRICS_HOST": "127.0.0.1",
    "SLUICE_METRICS_PORT": "0",
    "SLUICE_PROBES_HOST": "127.0.0.1",
    "SLUICE_PROBES_PORT": "0",
    "SLUICE_LOG_FORMAT": "text",
    "SLUICE_NAMESPACE": NAMESPACE,
    **bytecode_environ(),
}


class Programs:
    """The backends, and the programs that were started on them."""

    def __init__(self, stack: AsyncExitStack, folder: Path, nats: NatsServer) -> None:
        self.folder = folder
        self.nats = nats
        self._stack = stack
        clock = SystemClock()
        self.server = ApiServer(
            clock=clock, ids=SeededIds(random.Random(2)), random=random.Random(1), rules=CEL_RULES
        )
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=clock)

    async def install(self, *, lease: str) -> None:
        await self.kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await self.kube.create(LEASES, {"metadata": {"name": lease}}, namespace=NAMESPACE)

    async def start_role(self, service: str, **settings: str) -> ChildProcess:
        """Start a cluster role, with a kubeconfig for the simulated server."""
        http = await self._stack.enter_async_context(serve_http(self.server))
        kubeconfig = http.kubeconfig(self.folder, f"{service}-cluster")
        return await self._start(service, "cluster", {"kubeconfig": str(kubeconfig), **settings})

    async def start_agent(
        self,
        service: str,
        *,
        host: Path,
        role: str = "agent",
        environ: Mapping[str, str] = NOTHING,
        **settings: str,
    ) -> ChildProcess:
        """Start an agent on the machine below `host`; `environ` are no settings."""
        folders = {"host_root": str(host), "state_dir": str(self.folder / "state")}
        return await self._start(service, role, {**folders, **settings}, environ)

    async def _start(
        self,
        service: str,
        role: str,
        settings: Mapping[str, str],
        more: Mapping[str, str] = NOTHING,
    ) -> ChildProcess:
        environ = {f"SLUICE_{name.upper()}": value for name, value in settings.items()}
        child = await ChildProcess.start(
            f"{service} {role}",
            *(sys.executable, "-W", "error", "-m", f"services.{service}", role),
            environ={**ENVIRON, "SLUICE_NATS_URL": self.nats.url, **environ, **more},
        )
        self._stack.push_async_callback(child.destroy)
        return child

    @asynccontextmanager
    async def connect(self, writer: Writer, *, node: str = "") -> AsyncGenerator[Bus]:
        identity = Identity(writer=writer, node=node)
        async with connect(url=self.nats.url, identity=identity, env=make_env()) as bus:
            yield bus

    async def create_streams(self) -> None:
        async with self.connect(Writer.SCHEDULER) as bus:
            for stream in STREAMS:
                await bus.ensure(stream)


async def address_of(child: ChildProcess, server: str) -> str:
    """Wait until a child's HTTP server listens; return its URL."""
    await child.wait_for_log(f"{server} started")
    (port,) = re.findall(rf"{server} started.* port=([0-9]+)", child.log)
    return f"http://127.0.0.1:{port}"


@asynccontextmanager
async def run_programs(folder: Path) -> AsyncGenerator[Programs]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(NatsServer())
        programs = Programs(stack, folder, nats)
        stack.push_async_callback(programs.server.stop)
        yield programs
