"""A report cache of 10,000 states after a restart, compared with a bare ordered consumer."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager

import nats
from nats.js.api import DeliverPolicy

from bench.report import BenchReport, ratio
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.reports import ReportCache
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import PodUse, Usage
from libs.contracts.reports import Report as StateReport
from libs.contracts.subjects import STATE
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

TITLE = "10,000 states in a report cache; a plain ordered consumer that only reads them beside it"
STATES = 10_000
ROUNDS = 5
IDENTITY = Identity(writer=Writer.SCHEDULER)


async def run(report: BenchReport) -> None:
    """Measure both in turns, each on a new connection."""
    async with NatsServer() as server:
        async with _bus(server) as bus:
            await bus.ensure(STATE)
            await asyncio.gather(*(_store(bus, n) for n in range(STATES)))
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            theirs.append(await _plain(server))
            ours.append(await _fill_cache(server))
        report.figure("plain ordered consumer", min(theirs) * 1000, "ms")
        report.figure("report cache", min(ours) * 1000, "ms")
        report.at_most("report cache, in time of the plain consumer", ratio(ours, theirs), 3.0, "x")


def _bus(server: NatsServer) -> AbstractAsyncContextManager[NatsBus]:
    return connect(
        url=server.url,
        identity=IDENTITY,
        env=make_env(),
    )


async def _store(bus: NatsBus, n: int) -> None:
    node = f"gpu-{n}.example"
    subject = subjects.State(cluster="default", node=node, component="driver", kind="usage")
    usage = Usage(pods=tuple(PodUse(pod_uid=f"pod-{n}-{i}", gpus=1) for i in range(8)))
    report = StateReport.of(
        usage, node=node, node_uid=f"uid-{n}", boot_id=f"boot-{n}", component="driver", at=1.0
    )
    await bus.store(STATE, str(subject), encode(report))


async def _fill_cache(server: NatsServer) -> float:
    async with _bus(server) as bus:
        started = time.perf_counter()
        async with ReportCache(bus=bus, clock=SystemClock(), cluster="default") as cache:
            await cache.synced()
            seconds = time.perf_counter() - started
            assert len(list(cache.nodes())) == STATES
    return seconds


async def _plain(server: NatsServer) -> float:
    client = await nats.connect(server.url)
    done = asyncio.Event()
    count = 0

    async def received(_: object) -> None:
        nonlocal count
        count += 1
        if count == STATES:
            done.set()

    started = time.perf_counter()
    await client.jetstream().subscribe(
        subjects.cluster_pattern(subjects.State, "default"),
        cb=received,
        ordered_consumer=True,
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
    )
    await done.wait()
    seconds = time.perf_counter() - started
    await client.close()
    return seconds
