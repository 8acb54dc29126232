"""Telemetry's program: wiring only."""

import asyncio

from libs.bus.joining import join
from libs.bus.journal import FileJournal
from libs.contracts.identities import Writer
from libs.host.access import Threads
from libs.host.gpus.unread import UnreadGpus
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.kube.reaching import reach
from libs.runtime.http import HttpServer
from libs.runtime.logs import logger
from libs.runtime.process import Process
from libs.runtime.program import Role, program
from libs.runtime.service import Service
from services.telemetry.cluster import role
from services.telemetry.cluster.settings import TelemetryClusterSettings
from services.telemetry.node import agent
from services.telemetry.node.settings import TelemetrySettings

_log = logger()


async def on_node(process: Process[TelemetrySettings], service: Service) -> None:
    """The agent: its machine, its journal, its bus, and the page that it serves."""
    settings = process.settings
    access = await service.enter("machine", Threads("machine"))
    bus = await join(
        process=process,
        service=service,
        settings=settings.bus,
        writer=Writer.TELEMETRY,
    )
    pages = await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=Tree(settings.host_root), access=access, gpus=UnreadGpus()),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        clock=process.clock,
        random=process.random,
        ids=process.ids,
        metrics=process.metrics,
        service=service,
    )
    exporter = await service.enter("exporter", HttpServer(settings.exporter, pages))
    host, port = exporter.address
    _log.info("exporter started", host=host, port=port)


async def in_cluster(process: Process[TelemetryClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and to the batches."""
    settings, clock = process.settings, process.clock
    kube = await reach(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await join(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.TELEMETRY_CLUSTER,
    )
    await role.run(
        settings,
        kube=kube,
        bus=bus,
        clock=clock,
        random=process.random,
        metrics=process.metrics,
        service=service,
    )


if __name__ == "__main__":
    program(
        "telemetry",
        {
            "agent": Role(TelemetrySettings, on_node),
            "cluster": Role(TelemetryClusterSettings, in_cluster),
        },
    )
