"""Driver's program."""

import os
from pathlib import Path

from libs.bus.connect import connect_bus
from libs.bus.slot_cache import SlotCache
from libs.contracts.identities import Writer
from libs.host.linux import RealKernelForbidden, RealLinux
from libs.host.tree import Tree
from libs.kube.connect import connect
from libs.runtime.fatal import Fatal
from libs.runtime.process import Process
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from services.agent_role import agent_role
from services.driver.cluster import role
from services.driver.cluster.role import DriverClusterSettings
from services.driver.node import agent, gate_program
from services.driver.node.agent import DriverAgentSettings


def make_linux(settings: DriverAgentSettings, tree: Tree) -> RealLinux:
    """Return the kernel of this machine, if the settings allow it to be changed."""
    try:
        return RealLinux(tree, change_this_machine=settings.change_this_machine)
    except RealKernelForbidden as error:
        raise Fatal(str(error)) from error


async def run_cluster_role(process: Process[DriverClusterSettings], service: Service) -> None:
    """Start before the bus is connected: operands need only the API server."""
    settings, slots = process.settings, SlotCache()
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    await role.run(
        settings,
        env=process.env,
        kube=kube,
        commanded_drivers=slots.commanded_drivers,
        service=service,
    )
    bus = await connect_bus(
        process=process, service=service, settings=settings.nats, writer=Writer.DRIVER_CLUSTER
    )
    await service.enter("commands", slots.follow(bus))


def run_gate() -> int:
    """Wait at the gate of a driver pod, where the machine's folder is mounted at its own path."""
    return gate_program.wait_at_gate(Tree(Path("/")), os.environ)


if __name__ == "__main__":
    run_program(
        "driver",
        {
            "agent": agent_role(
                DriverAgentSettings, agent.run, writer=Writer.DRIVER, make_linux=make_linux
            ),
            "cluster": Role(DriverClusterSettings, run_cluster_role),
            "gate": run_gate,
        },
    )
