"""Discovery's program: wiring only."""

import asyncio

from sluice.bus.joining import join
from sluice.bus.journal import FileJournal
from sluice.contracts.identities import Writer
from sluice.discovery.cluster import role
from sluice.discovery.cluster.settings import DiscoveryClusterSettings
from sluice.discovery.node import agent
from sluice.discovery.node.agent import DiscoverySettings
from sluice.host.access import Threads
from sluice.host.gpus.unread import UnreadGpus
from sluice.host.machine import Machine
from sluice.host.tree import Tree
from sluice.kube.reaching import reach
from sluice.runtime.process import Process
from sluice.runtime.program import Role, program
from sluice.runtime.service import Service


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
