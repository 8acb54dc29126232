"""Memory and CPU of the telemetry agent on a machine with 8 GPUs, sampled once a second.

pynvml reads them from the stand-in for NVIDIA's library, whose calls take next to no time, so that
the agent's own share is as large as it can be. A kubelet lists which pods have the GPUs, and the
page is scraped.

A process beside it makes the same calls of pynvml in bare loops: those of a sweep, and the wait for
XIDs, which both sides need. In the stand-in the wait is a loop that looks every 2 ms and so takes
more than all other calls together, while NVML sleeps in the kernel. The agent keeps within twice
the bare calls only where that wait counts on both sides. Without it the ratio has no budget: a call
of the stand-in takes some 2 us, and against that any work counts that is done with its result. What
a machine pays for the agent is the absolute figure: a per mille of one processor is 1 ms/s.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc

from bench.fleet import LineProcess
from bench.report import BenchReport
from libs.bus.nats.bus import connect
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS
from libs.host.podresources import api_pb2 as api
from libs.testing.child_process import ChildProcess
from libs.testing.nats import NatsServer
from libs.testing.nvml import NAME, NotBuilt, StandIn, library, profiles
from libs.testing.simulation import make_env

TITLE = "the telemetry agent at one sweep a second over 8 GPUs, beside the bare calls"
SECONDS: Final = 30.0
SCRAPE_INTERVAL: Final = 10.0
WARM_UP: Final = 12.0
"""Seconds in which the agent has asked the kubelet, too."""

# rich comes with a tool of the checkout, and structlog imports it where it is installed.
_PROGRAM: Final = """
import runpy, sys
sys.modules["rich"] = None
runpy.run_module("services.telemetry", run_name="__main__", alter_sys=True)
"""


async def run(report: BenchReport) -> None:
    """Measure the agent and a process with the bare calls at the same time."""
    try:
        path = str(library())
    except NotBuilt as error:
        print(f"  left out: {error}")
        return
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-")))
        stand_in = _machine(folder)
        socket = stack.enter_context(_kubelet(folder, stand_in))
        nats = await stack.enter_async_context(NatsServer())
        environ = {
            **os.environ,
            **stand_in.environment,
            **_settings(folder, path, socket, nats.url),
            "PYTHONPATH": os.pathsep.join(sys.path),
            # An installed program is compiled; a compilation takes memory that is not given back.
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        await _create_streams(nats.url)
        async with _agent(environ) as compiled:
            await compiled.until_measured()
        agent = await stack.enter_async_context(_agent(environ))
        await agent.until_measured()
        bare = LineProcess(stack, "bench.telemetry_calls", f"{path}/{NAME}", environ=environ)
        calls = bare.read_line()["calls"]
        await asyncio.sleep(WARM_UP)
        found = await _measure(agent, bare)
        _report(report, agent, found, calls)


def _machine(folder: Path) -> StandIn:
    """Make a machine with a loaded driver."""
    devices = folder / "dev"
    devices.mkdir()
    for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(8))):
        (devices / name).touch()
    files = {"random/boot_id": "boot-1\n", "osrelease": "6.8.0-45-generic\n"}
    for name, text in files.items():
        file = folder / "host/proc/sys/kernel" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "host/proc/modules").write_text("nvidia 1 0 - Live 0x0\n")
    return StandIn.create(folder / "gpus", profiles.ALL["H100-80GB"], device_folder=devices)


@contextmanager
def _kubelet(folder: Path, machine: StandIn) -> Generator[str]:
    """Serve a list of 110 pods, of which each GPU has one; yield the socket."""
    pods = [
        api.PodResources(
            name=f"pod-{number}",
            namespace="default",
            containers=[api.ContainerResources(name="main", cpu_ids=range(8))],
        )
        for number in range(110)
    ]
    for pod, gpu in zip(pods, machine.gpus, strict=False):
        pod.containers[0].devices.add(resource_name="nvidia.com/gpu", device_ids=[gpu.uuid])
    data = api.ListPodResourcesResponse(pod_resources=pods).SerializeToString()

    def answer(_request: bytes, _context: Any) -> bytes:
        return data

    handlers = {"List": grpc.unary_unary_rpc_method_handler(answer)}
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((service,))
    socket = str(folder / "kubelet.sock")
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    yield socket
    server.stop(grace=None).wait()


def _settings(folder: Path, path: str, socket: str, nats: str) -> dict[str, str]:
    settings = {
        "NODE": "gpu-1",
        "NODE_UID": "uid-1",
        "HOST_ROOT": str(folder / "host"),
        "STATE_DIR": str(folder / "state"),
        "NVML_LIBRARY": path,
        "NATS_URL": nats,
        "POD_RESOURCES": socket,
        "LOG_FORMAT": "text",
        **{f"{server}_HOST": "127.0.0.1" for server in ("EXPORTER", "METRICS", "PROBES")},
        **{f"{server}_PORT": "0" for server in ("EXPORTER", "METRICS", "PROBES")},
    }
    return {f"SLUICE_{name}": value for name, value in settings.items()}


async def _create_streams(url: str) -> None:
    identity = Identity(writer=Writer.SCHEDULER)
    async with connect(url=url, identity=identity, env=make_env()) as bus:
        for stream in STREAMS:
            await bus.ensure(stream)


class _Agent:
    def __init__(self, child: ChildProcess, session: aiohttp.ClientSession) -> None:
        self._child = child
        self._session = session

    async def scrape(self) -> str:
        await self._child.wait_for_log("exporter started")
        port = self._child.log.split("exporter started")[1].split("port=")[1].split()[0]
        async with self._session.get(f"http://127.0.0.1:{port}/metrics") as response:
            return await response.text()

    async def until_measured(self) -> None:
        """Wait until there are 8 GPUs with profiling, each with a pod."""
        async with asyncio.timeout(60.0):
            while (await self.scrape()).count("DCGM_FI_PROF_GR_ENGINE_ACTIVE{") != 8:
                await asyncio.sleep(0.1)
            while 'pod="pod-7"' not in await self.scrape():
                await asyncio.sleep(0.1)

    @property
    def processes(self) -> list[int]:
        """The agent itself, then its NVML process."""
        tasks = Path(f"/proc/{self._child.pid}/task").glob("*/children")
        return [self._child.pid, *(int(pid) for file in tasks for pid in file.read_text().split())]


@asynccontextmanager
async def _agent(environ: dict[str, str]) -> AsyncGenerator[_Agent]:
    child = await ChildProcess.start(
        "telemetry", sys.executable, "-c", _PROGRAM, "agent", environ=environ
    )
    try:
        async with aiohttp.ClientSession() as session:
            yield _Agent(child, session)
    finally:
        await child.destroy()


class _Cpu:
    """CPU time of processes."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before = self._total()

    @property
    def seconds(self) -> float:
        return self._total() - self._before

    def _total(self) -> float:
        # The clock of a process by its id, as `clock_getcpuclockid` returns it on Linux.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self._pids)


async def _measure(agent: _Agent, bare: LineProcess) -> dict[str, float]:
    """Return the CPU milliseconds a second, in which there is one sweep."""
    parent, nvml = agent.processes
    waited = _waited(nvml)
    before = await asyncio.to_thread(bare.ask, "")
    clocks = {"agent": _Cpu(parent), "nvml": _Cpu(nvml)}
    began = time.monotonic()
    while (left := SECONDS - (time.monotonic() - began)) > 0:
        await asyncio.sleep(min(left, SCRAPE_INTERVAL))
        assert (await agent.scrape()).count("DCGM_FI_DEV_GPU_TEMP{") == 8
    after = await asyncio.to_thread(bare.ask, "")
    seconds = time.monotonic() - began
    return {
        **{name: clock.seconds / seconds * 1000 for name, clock in clocks.items()},
        "calls": (after["calls"] - before["calls"]) / (after["sweeps"] - before["sweeps"]) * 1000,
        "bare wait": (after["wait"] - before["wait"]) / seconds * 1000,
        "wait": (_waited(nvml) - waited) / seconds * 1000,
    }


def _waited(nvml: int) -> float:
    """Return the CPU seconds of the thread that waits for XIDs, the last that the process began."""
    thread = max(Path(f"/proc/{nvml}/task").iterdir(), key=lambda folder: int(folder.name))
    return int((thread / "schedstat").read_text().split()[0]) / 1e9


def _report(report: BenchReport, agent: _Agent, cpu: dict[str, float], calls: int) -> None:
    memory = [_memory(pid) for pid in agent.processes]
    for name, each in zip(("agent", "its NVML process"), memory, strict=True):
        note = f"{each['RssAnon']:.1f} its own, {each['RssFile']:.1f} of files"
        report.figure(f"resident, {name}", each["VmRSS"], "MiB", note=note)
    total = sum(each["VmRSS"] for each in memory)
    report.at_most("resident, together", total, 80, "MiB", note="shared pages counted twice")
    report.figure("bare calls", cpu["calls"], "ms/s", note=f"{calls} a second")
    polls = "the stand-in polls; NVML sleeps"
    report.figure("bare wait for XIDs", cpu["bare wait"], "ms/s", note=polls)
    report.figure("agent", cpu["agent"], "ms/s")
    report.figure("its NVML process", cpu["nvml"] - cpu["wait"], "ms/s")
    report.figure("its NVML process, waiting for XIDs", cpu["wait"], "ms/s", note=polls)
    ours = cpu["agent"] + cpu["nvml"]
    without = ours - cpu["wait"]
    note = f"{without / 10:.2f} % of one processor"
    report.at_most("CPU together without that wait", without, 10.0, "ms/s", note=note)
    times = ours / (cpu["calls"] + cpu["bare wait"])
    report.at_most("CPU together, in time of the calls and the wait", times, 2.0, "x")
    report.figure(
        "the same without the wait on both sides",
        without / cpu["calls"],
        "x",
        note="no budget: the results are cleaned, judged and published, too",
    )


def _memory(pid: int) -> dict[str, float]:
    """Return the resident memory of a process in MiB: all, its own, and of mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssFile")}
