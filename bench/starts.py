"""The time for which a node that may start waits for the scheduler, on 100 simulated nodes.

The time begins when its preflight is answered and the budget has room, whichever is later, and ends
when its cordon is sent; the write itself is the server's time. The run is in virtual time, so the
result is the CPU time of the process: of the scheduler together with server, bus and agents.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from bench.report import BenchReport
from libs.contracts import subjects
from libs.contracts.node import STATE_LABEL
from libs.contracts.reports import StateKind
from libs.kube.cache import WATCH_LAG
from libs.kube.requests import Request, Response
from libs.testing.bus import TraceRecord
from tests.component.processes import CuttableTransport
from tests.component.scheduler.world import NEW, OLD, World, play

TITLE = "from room in the budget to the cordon, 100 nodes"
NODES = 100
STARTS = 24
LIMIT_MS = 50.0
PROBE_MS = 1000.0 * WATCH_LAG
"""A start after ten quiet seconds first proves that a quiet kind's cache is current."""


class CpuMoment(msgspec.Struct, frozen=True, order=True):
    """A moment in virtual time and in CPU time."""

    at: float
    cpu: float


class CordonTimingWire(CuttableTransport):
    """A transport that records when nodes are cordoned and released."""

    def __init__(self, wire: CuttableTransport, world: World) -> None:
        super().__init__(wire)
        self._world = world
        self.cordons: dict[str, tuple[CpuMoment, CpuMoment]] = {}
        """By node: when the request was sent and answered."""
        self.ends: list[CpuMoment] = []
        """When nodes were released."""

    def now(self) -> CpuMoment:
        return CpuMoment(self._world.sim.clock.now(), time.process_time())

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        sent = self.now()
        async with super().open(request) as answer:
            yield answer
        self._note(request, sent)

    def _note(self, request: Request, sent: CpuMoment) -> None:
        if request.method != "PATCH" or "/nodes/" not in request.path or not request.body:
            return
        body = msgspec.json.decode(request.body)
        name = request.path.rpartition("/")[2]
        if body.get("spec", {}).get("unschedulable") and name not in self.cordons:
            self.cordons[name] = (sent, self.now())
        if body["metadata"].get("labels", {}).get(STATE_LABEL) == "upgrade-done":
            self.ends.append(self.now())


async def run(report: BenchReport) -> None:
    """Install a first driver on all nodes, then upgrade some of them one by one."""
    waits, writes = await asyncio.to_thread(play, _story)
    report.figure("starts", len(waits), "")
    slept = statistics.median(wait.at for wait in waits)
    report.at_most("virtual time before the cordon, P50", slept * 1000, PROBE_MS + LIMIT_MS, "ms")
    cpu = [wait.cpu * 1000 for wait in waits]
    report.figure(
        "CPU time of the write of the cordon, P50", statistics.median(writes) * 1000, "ms"
    )
    report.at_most("CPU time before it, P50", statistics.median(cpu), LIMIT_MS, "ms")
    report.figure("CPU time before it, P95", statistics.quantiles(cpu, n=20)[-1], "ms")


async def _story(world: World) -> tuple[list[CpuMoment], list[float]]:
    preflights: dict[str, CpuMoment] = {}

    def record(trace: TraceRecord) -> None:
        subject = subjects.parse(trace.subject) if trace.action == "store" else None
        if isinstance(subject, subjects.State) and subject.kind == StateKind.PREFLIGHT:
            preflights[subject.node] = wire.now()

    names = [f"n{number:03}" for number in range(NODES)]
    await world.install_fleet(*names, version=OLD, maxParallelUpgrades=0, maxUnavailable="100%")
    scheduler = world.start()
    wire = scheduler.transport = CordonTimingWire(scheduler.transport, world)
    world.bus.add_tracer(record)
    await world.wait_until_done(*names)
    wire.ends.clear()
    wire.cordons.clear()
    await world.apply_policy(NEW, maxParallelUpgrades=1, maxUnavailable=1)
    while len(wire.cordons) <= STARTS:
        await world.sleep(0.5)
    return _shares(wire, preflights)


def _shares(
    wire: CordonTimingWire, preflights: dict[str, CpuMoment]
) -> tuple[list[CpuMoment], list[float]]:
    """Return the delay and the CPU time of each start after the first."""
    waits, writes = list[CpuMoment](), list[float]()
    started = sorted(wire.cordons.items(), key=lambda item: item[1])[1:]
    for (name, (sent, answered)), free in zip(started, wire.ends, strict=False):
        since = max(free, preflights[name])
        waits.append(CpuMoment(sent.at - since.at, sent.cpu - since.cpu))
        writes.append(answered.cpu - sent.cpu)
    return waits, writes
