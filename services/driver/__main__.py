"""Driver's program: wiring only."""

import asyncio
import os
from pathlib import Path

from libs.bus.connect import connect_bus
from libs.bus.journal import FileJournal
from libs.bus.slot_cache import SlotCache
from libs.contracts.identities import Writer
from libs.host.gpus.port import UnsupportedGpus
from libs.host.linux import RealKernelForbidden, RealLinux
from libs.host.machine import Machine, ThreadOffload
from libs.host.tree import Tree
from libs.kube.connect import connect
from libs.runtime.fatal import Fatal
from libs.runtime.process import Process
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from services.driver.cluster import role
from services.driver.cluster.role import DriverClusterSettings
from services.driver.node import agent, gate_program
from services.driver.node.agent import DriverAgentSettings


async def run_agent(process: Process[DriverAgentSettings], service: Service) -> None:
    """The agent: its machine, its journal and its bus."""
    settings = process.settings
    tree = Tree(settings.host_root)
    try:
        linux = RealLinux(tree, change_this_machine=settings.change_this_machine)
    except RealKernelForbidden as error:
        raise Fatal(str(error)) from error
    access = await service.enter("machine", ThreadOffload("machine"))
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats_settings,
        writer=Writer.DRIVER,
    )
    await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=tree, offload=access, gpus=UnsupportedGpus(), linux=linux),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        env=process.env,
        service=service,
    )


async def run_cluster_role(process: Process[DriverClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and then to the bus: operands need only one."""
    settings, commanded = process.settings, SlotCache()
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    await role.run(
        settings,
        kube=kube,
        commanded_drivers=commanded.commanded_drivers,
        env=process.env,
        service=service,
    )
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.DRIVER_CLUSTER,
    )
    await service.enter("commands", commanded.follow(bus))


def run_gate() -> int:
    """The gate of a driver pod, where the machine's folder is mounted at its own path."""
    return gate_program.wait_at_gate(Tree(Path("/")), os.environ)


if __name__ == "__main__":
    run_program(
        "driver",
        {
            "agent": Role(DriverAgentSettings, run_agent),
            "cluster": Role(DriverClusterSettings, run_cluster_role),
            "gate": run_gate,
        },
    )
