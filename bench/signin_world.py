"""The processes of a storm of sign-ins: API server, nats-server, sign-in, and agents."""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import reduce
from pathlib import Path

import msgspec

from bench.fleet import LineProcess
from bench.signin_cluster import NAMESPACE
from libs.bus.connect import SPREAD
from libs.bus.server_config import Tls, server_config
from libs.contracts.identities import COMPONENTS
from libs.testing.certificates import CertificateAuthority
from libs.testing.child_process import ChildProcess
from libs.testing.nats import NatsServer
from libs.testing.sign_in import SignInKeys

PROGRAM = ("-m", "services.signin", "server")
PARTS = ("open", "verify", "answer")
POLL = 0.1
LIMIT = 300.0
"""Seconds after which a storm counts as one that does not end."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    nodes: int
    spread: float = SPREAD
    """Seconds over which agents spread their connects."""
    replicas: int = 1
    processes: int = 2
    """Processes of agents."""
    timeout: int = 10
    """Seconds that nats-server waits for an answer."""
    tls: bool = False
    program: tuple[str, ...] = PROGRAM

    @property
    def agents(self) -> int:
        return self.nodes * len(COMPONENTS)


class Agents(msgspec.Struct, frozen=True):
    """The reports of all processes of agents, added."""

    up: int
    last_up: float
    downs: int
    closed: int
    cpu: float


class StormWorld:
    def __init__(self, fleet: Fleet, folder: Path, stack: AsyncExitStack) -> None:
        self.fleet = fleet
        self._folder = folder
        self._stack = stack
        self._keys = SignInKeys(folder)
        self._ca_file = ""
        pair, tls = None, None
        if fleet.tls:
            authority = CertificateAuthority()
            self._ca_file = str(authority.write(folder / "ca.pem"))
            pair = authority.issue(folder, "server")
            files = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
            tls = Tls(**files, ca_file=self._ca_file)
        self.config = self._config(tls)
        self.nats = NatsServer(config=self.config, tls=pair)
        self.replicas: list[ChildProcess] = []
        self._ended: dict[str, float] = {}
        """The counters of sign-in processes that were killed."""
        self._agents: list[LineProcess] = []
        self._kubeconfig = ""
        self._tokens: dict[str, str] = {}

    async def start(self) -> None:
        """Start everything but the agents."""
        children = self._stack.enter_context(ExitStack())
        (self._folder / "tokens").mkdir()
        arguments = (str(self._folder / "tokens"), str(self.fleet.nodes))
        cluster = LineProcess(children, "bench.signin_cluster", *arguments)
        made = await asyncio.to_thread(cluster.read_line)
        self._kubeconfig, self._tokens = made["kubeconfig"], made["tokens"]
        await self._stack.enter_async_context(self.nats)
        await self.start_sign_in()

    async def start_sign_in(self) -> None:
        """Start all replicas of sign-in; return when they answer."""
        self.replicas = [await self._start_replica() for _ in range(self.fleet.replicas)]
        for child in self.replicas:
            await child.wait_for_log("phase=ready", within=60.0)

    async def kill_sign_in(self) -> None:
        self._ended = await self.counters()
        for child in self.replicas:
            await child.end(signal.SIGKILL, code=-signal.SIGKILL)
        self.replicas = []

    def connect_agents(self) -> None:
        """Start the processes of agents."""
        children = self._stack.enter_context(ExitStack())
        items = list(self._tokens.items())
        for part in range(self.fleet.processes):
            job = self._folder / f"job-{part}.json"
            content = {
                "url": self.nats.url,
                "tokens": dict(items[part :: self.fleet.processes]),
                "spread": self.fleet.spread,
                "ca_file": self._ca_file,
            }
            job.write_text(json.dumps(content))
            self._agents.append(LineProcess(children, "bench.signin_clients", str(job)))

    async def agents(self) -> Agents:
        reports = [await asyncio.to_thread(each.ask, "report") for each in self._agents]
        last_up = max(report["last_up"] for report in reports)
        return msgspec.convert({**reduce(_added, reports), "last_up": last_up}, Agents)

    async def until_all_back(self, *, downs: int = 0) -> Agents:
        """Wait until all are connected that were cut: the number of breaks is at least `downs`."""
        began = time.monotonic()
        while True:
            agents = await self.agents()
            if agents.up == self.fleet.agents and agents.downs >= downs:
                return agents
            if agents.closed or time.monotonic() > began + LIMIT:
                raise TimeoutError(f"of {self.fleet.agents} agents: {agents}")
            await asyncio.sleep(POLL)

    def server_cpu(self) -> float:
        return cpu_seconds(self.nats.pid)

    async def counters(self) -> dict[str, float]:
        """Return CPU seconds and metrics of sign-in, of all processes so far."""
        found = self._ended
        for child in self.replicas:
            counted = await asyncio.to_thread(_metrics, child.log)
            found = _added(found, {"cpu": cpu_seconds(child.pid), **counted})
        return found

    def _config(self, tls: Tls | None) -> str:
        fleet = self.fleet
        return server_config(
            self._keys.settings(identities=fleet.agents, timeout=fleet.timeout), tls=tls
        )

    async def _start_replica(self) -> ChildProcess:
        settings = {
            "METRICS_HOST": "127.0.0.1",
            "METRICS_PORT": "0",
            "PROBES_HOST": "127.0.0.1",
            "PROBES_PORT": "0",
            "LOG_FORMAT": "text",
            "NAMESPACE": NAMESPACE,
            "KUBECONFIG": self._kubeconfig,
            "NATS_URL": self.nats.url,
            "NATS_CA_FILE": self._ca_file,
            **self._keys.files,
        }
        environ = {f"SLUICE_{name.upper()}": value for name, value in settings.items() if value}
        child = await ChildProcess.start(
            "sign-in", sys.executable, *self.fleet.program, environ={**os.environ, **environ}
        )
        self._stack.push_async_callback(child.destroy)
        return child


@asynccontextmanager
async def storm_world(fleet: Fleet) -> AsyncGenerator[StormWorld]:
    """Start all processes, and connect all agents."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-storm-")))
        world = StormWorld(fleet, folder, stack)
        await world.start()
        world.connect_agents()
        await world.until_all_back()
        yield world


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _added(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in first | second}


def _metrics(log: str) -> dict[str, float]:
    (port,) = re.findall(r"metrics server started.* port=([0-9]+)", log)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        text = response.read().decode()
    found = re.findall(r"^sluice_signin_(\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}
