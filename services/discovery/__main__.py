"""Discovery's program: wiring only."""

import asyncio

from libs.bus.connect import connect_bus
from libs.bus.journal import FileJournal
from libs.contracts.identities import Writer
from libs.host.gpus.port import UnsupportedGpus
from libs.host.machine import Machine, ThreadOffload
from libs.host.tree import Tree
from libs.kube.connect import connect
from libs.runtime.process import Process
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from services.discovery.cluster import role
from services.discovery.cluster.role import DiscoveryClusterSettings
from services.discovery.node import agent
from services.discovery.node.agent import DiscoverySettings


async def run_agent(process: Process[DiscoverySettings], service: Service) -> None:
    """The agent: its machine, its journal and its bus."""
    settings = process.settings
    access = await service.enter("machine", ThreadOffload("machine"))
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats_settings,
        writer=Writer.DISCOVERY,
    )
    await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=Tree(settings.host_root), offload=access, gpus=UnsupportedGpus()),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        env=process.env,
        service=service,
    )


async def run_cluster_role(process: Process[DiscoveryClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and to what agents report."""
    settings = process.settings
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.DISCOVERY_CLUSTER,
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
        "discovery",
        {
            "agent": Role(DiscoverySettings, run_agent),
            "cluster": Role(DiscoveryClusterSettings, run_cluster_role),
        },
    )
