"""Discovery's program: wiring only."""

import asyncio

from libs.bus.joining import join
from libs.bus.journal import FileJournal
from libs.contracts.identities import Writer
from libs.host.access import Threads
from libs.host.gpus.unread import UnreadGpus
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.kube.reaching import reach
from libs.runtime.process import Process
from libs.runtime.program import Role, program
from libs.runtime.service import Service
from services.discovery.cluster import role
from services.discovery.cluster.settings import DiscoveryClusterSettings
from services.discovery.node import agent
from services.discovery.node.agent import DiscoverySettings


async def on_node(process: Process[DiscoverySettings], service: Service) -> None:
    """The agent: its machine, its journal and its bus."""
    settings = process.settings
    access = await service.enter("machine", Threads("machine"))
    bus = await join(
        process=process,
        service=service,
        settings=settings.bus,
        writer=Writer.DISCOVERY,
    )
    await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=Tree(settings.host_root), access=access, gpus=UnreadGpus()),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        clock=process.clock,
        random=process.random,
        service=service,
    )


async def in_cluster(process: Process[DiscoveryClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and to what agents report."""
    settings, clock = process.settings, process.clock
    kube = await reach(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await join(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.DISCOVERY_CLUSTER,
    )
    await role.run(
        settings,
        kube=kube,
        bus=bus,
        clock=clock,
        random=process.random,
        ids=process.ids,
        metrics=process.metrics,
        service=service,
    )


if __name__ == "__main__":
    program(
        "discovery",
        {
            "agent": Role(DiscoverySettings, on_node),
            "cluster": Role(DiscoveryClusterSettings, in_cluster),
        },
    )
