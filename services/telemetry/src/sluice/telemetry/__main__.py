"""Telemetry's program: wiring only."""

import asyncio

from sluice.bus.joining import join
from sluice.bus.journal import FileJournal
from sluice.contracts.identities import Writer
from sluice.host.access import Threads
from sluice.host.gpus.unread import UnreadGpus
from sluice.host.machine import Machine
from sluice.host.tree import Tree
from sluice.kube.reaching import reach
from sluice.runtime.http import HttpServer
from sluice.runtime.logs import logger
from sluice.runtime.process import Process
from sluice.runtime.program import Role, program
from sluice.runtime.service import Service
from sluice.telemetry.cluster import role
from sluice.telemetry.cluster.settings import TelemetryClusterSettings
from sluice.telemetry.node import agent
from sluice.telemetry.node.settings import TelemetrySettings

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
