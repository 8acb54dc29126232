"""How long a node that may start waits for us: 100 nodes on the simulated server.

From the moment when its preflight is answered and a place in the budget is free, whichever comes
later, until its cordon is sent; the write itself is the server's time. It is played in virtual
time, where nothing happens in between but what has to, and no clock is asked: what is counted is
the CPU time of the process, and so of the scheduler together with server, bus and agents.
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
from libs.kube.requests import Request, Response
from libs.testing.bus import TraceRecord
from tests.component.processes import CuttableTransport
from tests.component.scheduler.world import NEW, OLD, World, play

TITLE = "from a free place to the cordon, 100 nodes"
NODES = 100
STARTS = 24
LIMIT_MS = 50.0


class CpuMoment(msgspec.Struct, frozen=True, order=True):
    """Measure in virtual time and in CPU time."""

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
    report.at_most("virtual time before the cordon, P50", slept * 1000, LIMIT_MS, "ms")
    cpu = [wait.cpu * 1000 for wait in waits]
    report.figure("CPU time of the cordon's own write, P50", statistics.median(writes) * 1000, "ms")
    report.at_most("CPU time before it, P50", statistics.median(cpu), LIMIT_MS, "ms")
    report.figure("CPU time before it, P95", statistics.quantiles(cpu, n=20)[-1], "ms")


async def _story(world: World) -> tuple[list[CpuMoment], list[float]]:
    preflights: dict[str, CpuMoment] = {}

    def hear(it: TraceRecord) -> None:
        of = subjects.parse(it.subject) if it.what == "store" else None
        if isinstance(of, subjects.State) and of.kind == StateKind.PREFLIGHT:
            preflights[of.node] = wire.now()

    names = [f"n{number:03}" for number in range(NODES)]
    await world.install_fleet(*names, version=OLD, maxParallelUpgrades=0, maxUnavailable="100%")
    scheduler = world.start()
    wire = scheduler.transport = CordonTimingWire(scheduler.transport, world)
    world.bus.add_tracer(hear)
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
    started = sorted(wire.cordons.items(), key=lambda one: one[1])[1:]
    for (name, (sent, answered)), free in zip(started, wire.ends, strict=False):
        since = max(free, preflights[name])
        waits.append(CpuMoment(sent.at - since.at, sent.cpu - since.cpu))
        writes.append(answered.cpu - sent.cpu)
    return waits, writes
