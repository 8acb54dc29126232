"""The memory of a scheduler's process that leads 5,000 nodes and has decided about them.

The production program runs over HTTP and NATS. Every node has full size and is a member of a pool,
and its driver agent has reported the loaded driver and the pods that use GPUs.
"""

import asyncio
import json
import os
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from bench.fleet import LineProcess
from bench.report import BenchReport
from demo.admin import DemoAdmin
from demo.paths import NAMESPACE
from demo.process_group import ProcessGroup
from libs.bus.nats.bus import NatsBus
from libs.bus.nats.bus import connect as join
from libs.contracts import subjects
from libs.contracts.facts import Facts, Gate, LoadedDriver
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import PodUse, Usage
from libs.contracts.reports import Report as StateReport
from libs.contracts.subjects import STATE, STREAMS
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.resources import NODES
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

TITLE = "a scheduler's process that leads 5,000 nodes: its memory"
COUNT: Final = 5_000
CHANGES, RATE = 5_000, 500
LABEL: Final = "nvidia.com/gpu.present"
WAITING: Final = "sluice_scheduler_nodes_waiting"
DRIVER = LoadedDriver(version="570.86.15", loaded_at=1.0)


async def run(report: BenchReport) -> None:
    """Measure after the first decision about all nodes, and after each of them changed."""
    with ExitStack() as stack:
        server = await asyncio.to_thread(
            LineProcess, stack, "bench.fleet_server", str(COUNT), LABEL
        )
        filled = await asyncio.to_thread(server.read_line)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(filled["url"], filled["token"])))
        async with NatsServer() as nats, ProcessGroup(os.environ) as processes:
            await _fill(nats, kubeconfig)
            scheduler = await processes.start(
                *("scheduler", "services.scheduler", "scheduler"),
                namespace=NAMESPACE,
                kubeconfig=str(kubeconfig),
                pod_name="scheduler-1",
                nats_url=nats.url,
            )
            await processes.wait_ready("scheduler")
            while (figures := await asyncio.to_thread(_figures, scheduler.metrics_url))[
                WAITING
            ] < COUNT:
                await asyncio.sleep(0.5)
            report.figure("nodes decided about", figures[WAITING], "")
            report.figure("memory after the first decision", _mib(figures), "MiB")
            await asyncio.to_thread(server.ask, f"{CHANGES} {RATE}")
            figures = await asyncio.to_thread(_figures, scheduler.metrics_url)
            report.at_most("memory after a change of each node", _mib(figures), 256, "MiB")


async def _fill(nats: NatsServer, kubeconfig: Path) -> None:
    """Create the policies and the reports that exist before the start."""
    clock = SystemClock()
    transport = await open_transport(clock=clock, kubeconfig=kubeconfig)
    async with transport:
        kube = Kube(transport, manager="kubectl", clock=clock)
        admin = DemoAdmin(kube)
        await admin.install()
        await admin.apply_policy("570.86.15")
        nodes = [node async for node in _nodes(kube)]
    identity = Identity(writer=Writer.SCHEDULER)
    source = random.Random(1)
    async with join(
        url=nats.url, identity=identity, env=make_env(clock=clock, random=source)
    ) as bus:
        for stream in STREAMS:
            await bus.ensure(stream)
        for first in range(0, len(nodes), 500):
            batch = nodes[first : first + 500]
            await asyncio.gather(*(_report(bus, name, uid) for name, uid in batch))


async def _nodes(kube: Kube) -> AsyncIterator[tuple[str, str]]:
    token = ""
    while True:
        page = await kube.list_page(NODES, limit=500, continue_token=token)
        for node in page.items:
            yield node.metadata.name, node.metadata.uid
        if not (token := page.continue_token):
            return


async def _report(bus: NatsBus, node: str, uid: str) -> None:
    pods = tuple(PodUse(pod_uid=f"{uid}-{number}", gpus=1) for number in range(8))
    for body in (Facts(driver=DRIVER, gate=Gate()), Usage(pods=pods)):
        report = StateReport.of(
            body, node=node, node_uid=uid, boot_id="boot", component=Writer.DRIVER, at=1.0
        )
        subject = subjects.State(
            cluster="default", node=node, component=Writer.DRIVER, kind=report.kind
        )
        await bus.store(STATE, str(subject), encode(report))


def _kubeconfig(url: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }


def _figures(page: str) -> dict[str, float]:
    """Return the sum of the samples of each metric."""
    with urlopen(page, timeout=30) as answer:
        text = answer.read().decode()
    return {
        family.name: sum(sample.value for sample in family.samples)
        for family in text_string_to_metric_families(text)
    }


def _mib(figures: dict[str, float]) -> float:
    return figures["process_resident_memory_bytes"] / 2**20
