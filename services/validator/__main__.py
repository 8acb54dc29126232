"""Validator's program: wiring only."""

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
from services.validator.cluster import role
from services.validator.cluster.role import ValidatorClusterSettings
from services.validator.node import agent
from services.validator.node.agent import ValidatorSettings


async def run_agent(process: Process[ValidatorSettings], service: Service) -> None:
    """The agent: its machine, its journal and its bus."""
    settings = process.settings
    access = await service.enter("machine", ThreadOffload("machine"))
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats_settings,
        writer=Writer.VALIDATOR,
    )
    await agent.run(
        settings,
        bus=bus,
        host=Machine(tree=Tree(settings.host_root), offload=access, gpus=UnsupportedGpus()),
        journal=FileJournal(settings.state_dir / "journal", run=asyncio.to_thread),
        env=process.env,
        service=service,
    )


async def run_cluster_role(process: Process[ValidatorClusterSettings], service: Service) -> None:
    """The cluster role: its way to the API server, and to the evidence."""
    settings = process.settings
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.VALIDATOR_CLUSTER,
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
        "validator",
        {
            "agent": Role(ValidatorSettings, run_agent),
            "cluster": Role(ValidatorClusterSettings, run_cluster_role),
        },
    )
