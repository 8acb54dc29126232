"""Reconnection of 9,500 identities in two processes after the server is killed."""

import asyncio
import json
import logging
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path

from bench.report import BenchReport
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import BusUnavailable
from libs.bus.server_config import User, new_nkey, server_config
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

TITLE = "9,500 nkey identities in two processes, back after kill -9 of the server"
IDENTITIES = 9_500
PROCESSES = 2
SPREAD = IDENTITIES / 500
BEAT_SECONDS = 1.0


async def run(report: BenchReport) -> None:
    """Publish a heartbeat per identity and second; a received heartbeat proves a reconnection."""
    scheduler = Identity(writer=Writer.SCHEDULER)
    nodes = [Identity(writer=Writer.DRIVER, node=f"gpu-{n}.example") for n in range(IDENTITIES)]
    seeds, users = dict[str, str](), list[User]()
    for identity in (scheduler, *nodes):
        key = new_nkey()
        seeds[identity.node] = key.seed
        users.append(User(identity=identity, public_key=key.public))
    config = server_config(users)
    async with NatsServer(config=config) as server, AsyncExitStack() as stack:
        reader = await stack.enter_async_context(
            _connect(server.url, scheduler, seeds.pop(""), spread=0.0)
        )
        connected_subjects: set[str] = set()
        await reader.subscribe(
            subjects.cluster_pattern(subjects.Beat, scheduler.cluster),
            lambda subject, _data, _reply: connected_subjects.add(subject),
        )
        for part in range(PROCESSES):
            _start_worker(stack, server.url, dict(list(seeds.items())[part::PROCESSES]))
        connect_seconds = await _until(lambda: len(connected_subjects) == IDENTITIES)
        report.figure("all connected", connect_seconds, "s", note=f"spread over {SPREAD:g} s")
        await server.kill()
        connected_subjects.clear()
        await server.start()
        reconnect_seconds = await _until(lambda: len(connected_subjects) == IDENTITIES)
        report.figure("all reconnected after kill -9", reconnect_seconds, "s")
        report.at_most("reconnected, in time of the spread", reconnect_seconds / SPREAD, 3.0, "x")
        report.figure("server", server.resident_mib(), "MiB")


def _connect(
    url: str, identity: Identity, seed: str, *, spread: float
) -> AbstractAsyncContextManager[NatsBus]:
    return connect(
        url=url,
        identity=identity,
        env=make_env(random=random.Random(str(identity))),
        credentials=Credentials(nkey_seed=seed),
        wait=120.0,
        spread=spread,
    )


def _start_worker(stack: AsyncExitStack, url: str, seeds: dict[str, str]) -> None:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    job_file = folder / "job.json"
    job_file.write_text(json.dumps({"url": url, "seeds": seeds}))
    worker = subprocess.Popen([sys.executable, "-m", "bench.identities", str(job_file)])
    stack.callback(worker.wait)
    stack.callback(worker.terminate)


async def _until(check: Callable[[], bool]) -> float:
    started = time.perf_counter()
    async with asyncio.timeout(180):
        while not check():
            await asyncio.sleep(0.05)
    return time.perf_counter() - started


async def _work(job_file: Path) -> None:
    job = json.loads(job_file.read_text())
    async with asyncio.TaskGroup() as group:
        for node, seed in job["seeds"].items():
            group.create_task(_live(job["url"], seed, node))


async def _live(url: str, seed: str, node: str) -> None:
    component = Identity(writer=Writer.DRIVER, node=node)
    async with _connect(url, component, seed, spread=SPREAD) as bus:
        await _beat(bus, node)


async def _beat(bus: NatsBus, node: str) -> None:
    subject = str(subjects.Beat(cluster="default", node=node, component="driver"))
    while True:
        with suppress(BusUnavailable):
            await bus.publish(subject, b"{}")
        await asyncio.sleep(BEAT_SECONDS)


if __name__ == "__main__":
    logging.disable()
    asyncio.run(_work(Path(sys.argv[1])))
