"""Decoding and watching 5,000 nodes, compared with kubernetes_asyncio."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

from bench.recorded import NODES as COUNT
from bench.recorded import pages
from bench.report import BenchReport, ratio
from libs.kube.client import Kube
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.reflector import Changed, Reflector
from libs.kube.requests import Request
from libs.kube.resources import NODES
from libs.runtime.clock import SystemClock
from libs.testing.simulation import make_env

TITLE = "5,000 nodes of 19 KB: decoded and watched, beside kubernetes_asyncio"
EVENTS = 20_000
THEIR_EVENTS = 2_000
ROUNDS = 3


async def run(report: BenchReport) -> None:
    """Measure both clients in turns."""
    await _decode(report)
    async with _recorded() as url:
        await _watch(report, url)


class _PreparedResponses:
    """A transport with prepared responses, so that only the work of the client is measured."""

    status = 200
    headers: dict[str, str] = {}

    def __init__(self, bodies: list[bytes]) -> None:
        self._bodies = bodies
        self._body = b""

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator["_PreparedResponses"]:
        self._body = self._bodies[int(request.query.get("continue", "0"))]
        yield self

    async def body(self) -> bytes:
        return self._body

    def chunks(self) -> AsyncIterator[bytes]:
        raise AssertionError("a bench of lists opens no watch")


async def _decode(report: BenchReport) -> None:
    from kubernetes_asyncio.client import ApiClient, Configuration

    bodies = pages()
    report.figure("size of a node", sum(map(len, bodies)) / COUNT / 1000, "kB")
    kube = Kube(_PreparedResponses(bodies), manager="bench", clock=SystemClock())
    ours: list[float] = []
    theirs: list[float] = []
    async with ApiClient(Configuration()) as api:
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for page in range(len(bodies)):
                await kube.list_page(NODES, continue_token=str(page))
            ours.append(time.perf_counter() - started)
            # One page is enough for kubernetes_asyncio: its time is proportional to the nodes.
            started = time.perf_counter()
            api.deserialize(SimpleNamespace(data=bodies[0].decode()), "V1NodeList")
            theirs.append((time.perf_counter() - started) * len(bodies))
    report.figure("decoded by us", min(ours) * 1000, "ms")
    report.at_least("decode, as many times as fast", 1 / ratio(ours, theirs), 20, "x")


async def _watch(report: BenchReport, url: str) -> None:
    ours = [EVENTS / await _our_watch(url) for _ in range(ROUNDS)]
    theirs = [THEIR_EVENTS / await _their_watch(url) for _ in range(ROUNDS)]
    report.figure("watch events read by us", max(ours), "1/s")
    report.at_least("watch, as many times as fast", ratio(ours, theirs), 20, "x")


async def _our_watch(url: str) -> float:
    async with HttpTransport(url, credentials=StaticToken()) as transport:
        kube = Kube(transport, manager="bench", clock=SystemClock())
        watch = Reflector(kube, NODES, env=make_env())
        count, started = 0, 0.0
        async with aclosing(watch.updates()) as updates:
            async for update in updates:
                if isinstance(update, Changed):
                    started = started or time.perf_counter()
                    count += 1
                    if count == EVENTS:
                        break
    return time.perf_counter() - started


async def _their_watch(url: str) -> float:
    from kubernetes_asyncio import client, watch

    configuration = client.Configuration(host=url)
    async with client.ApiClient(configuration) as api, watch.Watch() as theirs:
        nodes = client.CoreV1Api(api)
        count, started = 0, 0.0
        async for _ in theirs.stream(nodes.list_node, resource_version="1"):
            started = started or time.perf_counter()
            count += 1
            if count == THEIR_EVENTS:
                break
    return time.perf_counter() - started


@asynccontextmanager
async def _recorded() -> AsyncGenerator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.recorded", str(EVENTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        output: Any = server.stdout
        port = await asyncio.to_thread(output.readline)
        yield f"http://127.0.0.1:{int(port)}"
        server.communicate()
