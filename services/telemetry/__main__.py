"""Telemetry's program: wiring only."""

import asyncio

from libs.bus.connect import connect_bus
from libs.bus.journal import FileJournal
from libs.contracts.identities import Writer
from libs.host.gpus.port import UnsupportedGpus
from libs.host.machine import Machine, ThreadOffload
from libs.host.tree import Tree
from libs.kube.connect import connect
from libs.runtime.http import HttpServer
from libs.runtime.logs import logger
from libs.runtime.process import Process
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from services.telemetry.cluster import role
from services.telemetry.cluster.role import TelemetryClusterSettings
from services.telemetry.node import agent
from services.telemetry.node.agent import TelemetrySettings

_log = logger()


async def run_agent(process: Process[TelemetrySettings], service: Service) -> None:
    """The agent: its machine, its journal, its bus, and the page that it serves."""
    settings = process.settings
    access = await service.enter("machine", ThreadOffload("machine"))
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats_settings,
        writer=Writer.TELEMETRY,
    )
    pages = await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=Tree(settings.host_root), offload=access, gpus=UnsupportedGpus()),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        env=process.env,
        service=service,
    )
    exporter = await service.enter("exporter", HttpServer(settings.exporter, pages))
    host, port = exporter.address
    _log.info("exporter started", host=host, port=port)


async def run_cluster_role(process: Process[TelemetryClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and to the batches."""
    settings = process.settings
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.TELEMETRY_CLUSTER,
    )
    await role.run(
        settings,
        kube=kube,
        bus=bus,
        env=process.env,
        service=service,
    )


if __name__ == "__main__":
    run_program(
        "telemetry",
        {
            "agent": Role(TelemetrySettings, run_agent),
            "cluster": Role(TelemetryClusterSettings, run_cluster_role),
        },
    )
