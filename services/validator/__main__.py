"""Validator's program: wiring only."""

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
from services.validator.cluster import role
from services.validator.cluster.settings import ValidatorClusterSettings
from services.validator.node import agent
from services.validator.node.agent import ValidatorSettings


async def on_node(process: Process[ValidatorSettings], service: Service) -> None:
    """The agent: its machine, its journal and its bus."""
    settings = process.settings
    access = await service.enter("machine", Threads("machine"))
    bus = await join(
        process=process,
        service=service,
        settings=settings.bus,
        writer=Writer.VALIDATOR,
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


async def in_cluster(process: Process[ValidatorClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and to the evidence."""
    settings, clock = process.settings, process.clock
    kube = await reach(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await join(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.VALIDATOR_CLUSTER,
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
        "validator",
        {
            "agent": Role(ValidatorSettings, on_node),
            "cluster": Role(ValidatorClusterSettings, in_cluster),
        },
    )
