"""`sluice web` on 2,000 nodes with 16,000 GPUs at 50 changes a second, with one open page.

The API server is simulated, in a process of its own (`python -m bench.web`), with full-sized Nodes.
Half of the changes are writes of it, to Nodes and Devices; the other half are events in NATS. The
page's reader is in the process of the bench.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench.fleet import LineProcess
from bench.report import BenchReport
from libs.bus.nats.bus import NatsBus, connect
from libs.contracts import subjects
from libs.contracts.events import Event, StepEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.node import STATE_LABEL
from libs.contracts.subjects import STREAMS
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.resources import NODES
from libs.policy.crds import CEL_RULES, crd_manifests
from libs.runtime.clock import SystemClock
from libs.runtime.env import RandomIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.kubelet.hardware import KERNEL, Hardware, node
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

TITLE = "`sluice web` on 2,000 nodes with 16,000 GPUs at 50 changes a second"
COUNT: Final = 2000
GPUS: Final = 8
SECONDS: Final = 30
PER_SECOND: Final = 25
"""Of each of both kinds of change."""
_STATES: Final = ("wait-for-jobs-required", "pod-restart-required", "upgrade-done")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


async def run(report: BenchReport) -> None:
    """Measure the command's own process."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-")))
        nats = await stack.enter_async_context(NatsServer())
        identity = Identity(writer=Writer.SCHEDULER)
        bus = await stack.enter_async_context(
            connect(url=nats.url, identity=identity, env=make_env())
        )
        for stream in STREAMS:
            await bus.ensure(stream)
        server = LineProcess(stack, "bench.web", str(folder))
        kubeconfig = (await asyncio.to_thread(server.read_line))["kubeconfig"]
        environ = {**os.environ, "KUBECONFIG": kubeconfig, "SLUICE_NATS_URL": nats.url}
        bare = await asyncio.to_thread(_resident_bare)
        page = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "libs.ctl", "web", "--port", "0"),
            stdout=asyncio.subprocess.PIPE,
            env=environ,
        )
        try:
            assert page.stdout is not None
            address = (await page.stdout.readline()).decode().split()[4]
            await _measure(report, page.pid, address, server=server, bus=bus, bare=bare)
        finally:
            page.terminate()
            await page.wait()


async def _measure(
    report: BenchReport, pid: int, address: str, *, server: LineProcess, bus: NatsBus, bare: float
) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{address}api/changes", timeout=aiohttp.ClientTimeout(total=None)) as stream,
    ):
        whole = _size(await _next(stream))
        while whole < COUNT:
            whole += _size(await _next(stream))
        reading = asyncio.create_task(_count(stream))
        synced = _resident(pid)
        began, used = time.perf_counter(), _cpu(pid)
        writing = asyncio.to_thread(server.ask, f"{PER_SECOND * SECONDS}")
        await asyncio.gather(writing, _publish(bus))
        took, cpu = time.perf_counter() - began, _cpu(pid) - used
        reading.cancel()
        (counted,) = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(counted, asyncio.CancelledError)
    report.figure("bare interpreter", bare, "MiB")
    report.figure("page, when it has the fleet", synced, "MiB")
    report.at_most(
        "page, after the changes, above the interpreter", _resident(pid) - bare, 80, "MiB"
    )
    changes = 2 * PER_SECOND * SECONDS / took
    report.at_most("processor at the changes", 100 * cpu / took, 10, "%", note=f"{changes:.0f}/s")


async def _next(stream: aiohttp.ClientResponse) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n\n"):
        line += await stream.content.readany()
    return json.loads(line.rpartition(b"data: ")[2])


def _size(change: dict[str, Any]) -> int:
    return len(change.get("nodes", ()))


async def _count(stream: aiohttp.ClientResponse) -> None:
    while await stream.content.readany():
        pass


async def _publish(bus: NatsBus) -> None:
    began = time.perf_counter()
    for number in range(PER_SECOND * SECONDS):
        name = f"gpu-{number % COUNT:05}"
        body = StepEvent(pool="pool", token=1, before="", after=_STATES[number % 3], target="t")
        event = Event.of(
            body,
            id=f"{number}",
            at=time.time(),
            writer=Writer.SCHEDULER,
            message=f"{name} is {body.after}",
            node=name,
        )
        subject = subjects.Event(cluster="default", node=name, writer=event.writer, kind=event.kind)
        await bus.store(subjects.EVENTS, str(subject), encode(event), id=event.id)
        await _pace(number, began)


async def _pace(number: int, began: float) -> None:
    await asyncio.sleep(max(0.0, number / PER_SECOND - (time.perf_counter() - began)))


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _cpu(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_bare() -> float:
    program = "from bench.resident import resident; print(resident())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


async def serve(folder: Path) -> None:
    """Be the API server: fill it, print the kubeconfig, and change objects as told on stdin."""
    clock = SystemClock()
    server = ApiServer(clock=clock, ids=RandomIds(), random=random.Random(1), rules=CEL_RULES)
    kube = Kube(server.transport(user="bench"), manager="bench", clock=clock)
    for definition in crd_manifests().values():
        name = definition["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        await _apply(kube, path, definition)
    hardware = Hardware(
        full=True, labels={"nvidia.com/gpu.present": "true", STATE_LABEL: "upgrade-done"}
    )
    for number in range(COUNT):
        name = f"gpu-{number:05}"
        made = node(name, hardware, ip="10.0.0.1", boot_id="boot", kernel=KERNEL, now=clock.now())
        await kube.create(NODES, made)
        for index in range(GPUS):
            await _add_device(kube, name, index)
    async with serve_http(server) as http:
        print(json.dumps({"kubeconfig": str(http.kubeconfig(folder, "bench"))}), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            began = time.perf_counter()
            for number in range(int(line)):
                await _change(kube, number)
                await _pace(number, began)
            print("{}", flush=True)


async def _add_device(kube: Kube, name: str, index: int) -> None:
    spec = {"node": name, "index": index, "product": "NVIDIA H100 80GB HBM3", "memory": 81_559}
    device = f"{name}-{index}"
    body = {
        "apiVersion": "gpu.nvidia.com/v1",
        "kind": "Device",
        "metadata": {"name": device},
        "spec": spec,
        "status": {"uuid": f"GPU-{device}", "health": {"state": "ok"}},
    }
    await kube.request("POST", "/apis/gpu.nvidia.com/v1/devices", body=body)


async def _change(kube: Kube, number: int) -> None:
    """Change the state of a Node, or each fifth time the health of a GPU."""
    name = f"gpu-{number % COUNT:05}"
    if number % 5 == 4:
        health = {"state": "degraded", "message": f"row remapping {number}"}
        path, body = f"/apis/gpu.nvidia.com/v1/devices/{name}-0", {"status": {"health": health}}
    else:
        state = {STATE_LABEL: _STATES[number % 3]}
        path, body = NODES.path(name=name), {"metadata": {"labels": state}}
    await kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)


async def _apply(kube: Kube, path: str, body: dict[str, Any]) -> None:
    query = {"fieldManager": "bench", "force": "true"}
    await kube.request("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
