"""Driver's program: wiring only."""

import asyncio
import os
from pathlib import Path

from libs.bus.joining import join
from libs.bus.journal import FileJournal
from libs.contracts.identities import Writer
from libs.host.access import Threads
from libs.host.gpus.unread import UnreadGpus
from libs.host.linux import ForbiddenHere, RealLinux
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.kube.reaching import reach
from libs.runtime.fatal import Fatal
from libs.runtime.process import Process
from libs.runtime.program import Role, program
from libs.runtime.service import Service
from services.driver.cluster import role
from services.driver.cluster.commanded import Commanded
from services.driver.cluster.settings import DriverClusterSettings
from services.driver.node import agent, gate
from services.driver.node.settings import DriverAgentSettings


async def on_node(process: Process[DriverAgentSettings], service: Service) -> None:
    """The agent: its machine, its journal and its bus."""
    settings, clock = process.settings, process.clock
    tree = Tree(settings.host_root)
    try:
        linux = RealLinux(tree, change_this_machine=settings.change_this_machine)
    except ForbiddenHere as error:
        raise Fatal(str(error)) from error
    access = await service.enter("machine", Threads("machine"))
    bus = await join(
        process=process,
        service=service,
        settings=settings.bus,
        writer=Writer.DRIVER,
    )
    await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=tree, access=access, gpus=UnreadGpus(), linux=linux),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        clock=clock,
        random=process.random,
        service=service,
    )


async def in_cluster(process: Process[DriverClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and then to the bus: operands need only one."""
    settings, clock, commanded = process.settings, process.clock, Commanded()
    kube = await reach(process=process, service=service, kubeconfig=settings.kubeconfig)
    await role.run(
        settings,
        kube=kube,
        slots=commanded,
        clock=clock,
        random=process.random,
        ids=process.ids,
        metrics=process.metrics,
        service=service,
    )
    bus = await join(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.DRIVER_CLUSTER,
    )
    await service.enter("commands", commanded.following(bus))


def at_the_gate() -> int:
    """The gate of a driver pod, where the machine's folder is mounted at its own path."""
    return gate.wait(Tree(Path("/")), os.environ)


if __name__ == "__main__":
    program(
        "driver",
        {
            "agent": Role(DriverAgentSettings, on_node),
            "cluster": Role(DriverClusterSettings, in_cluster),
            "gate": at_the_gate,
        },
    )
