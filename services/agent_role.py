"""Build the role of a node agent: its machine, journal and bus connection."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

from libs.bus.agent import AgentSettings
from libs.bus.connect import connect_bus
from libs.bus.journal import FileJournal
from libs.contracts.identities import Writer
from libs.host.cuda.port import Cuda
from libs.host.gpus.nvml import NvmlGpus
from libs.host.linux import Linux
from libs.host.machine import Machine, ThreadOffload, closed_at_end
from libs.host.runtimes.port import ContainerRuntime
from libs.host.tree import Tree
from libs.runtime.process import Process
from libs.runtime.program import Role
from libs.runtime.service import Service
from services.agent_frame import Given

PATIENCE: Final = 5.0
"""Seconds after which an agent starts without NATS: a node comes back while that is away."""

S = TypeVar("S", bound=AgentSettings)


RunAgent: TypeAlias = Callable[[S, Given], Coroutine[Any, Any, object]]
"""The `run` of an agent: starts the agent's tasks in the given service and returns."""


def agent_role(
    kind: type[S],
    run: RunAgent[S],
    *,
    writer: Writer,
    make_linux: Callable[[S, Tree], Linux | None] = lambda _settings, _tree: None,
    make_cuda: Callable[[S, Tree], Cuda] | None = None,
    make_runtime: Callable[[S, Tree], ContainerRuntime] | None = None,
) -> Role[S]:
    """Return a role that runs `run` on the machine under the host root of its settings.

    `make_linux` returns the kernel for an agent that may change it, `make_cuda` what an agent
    computes with, `make_runtime` the container runtime for an agent that configures it.

    What is entered last is closed first. So the threads of the machine end last: whatever closes
    before may still call on them.
    """

    async def start(process: Process[S], service: Service) -> None:
        settings = process.settings
        tree = Tree(settings.host_root)
        linux = make_linux(settings, tree)
        offload = await service.enter("machine", ThreadOffload("machine"))
        bus = await connect_bus(
            process=process,
            service=service,
            settings=settings.nats_settings,
            writer=writer,
            patience=PATIENCE,
        )
        # Entered last, so that it is closed first: calls that wait for the driver end with it.
        nvml = NvmlGpus(tree, nvml_library=settings.nvml_library, driver_root=settings.driver_root)
        gpus = await service.enter("gpus", closed_at_end(nvml, offload))
        cuda = None
        if make_cuda is not None:
            cuda = await service.enter("cuda", closed_at_end(make_cuda(settings, tree), offload))
        runtime = None if make_runtime is None else make_runtime(settings, tree)
        host = Machine(
            tree=tree, offload=offload, gpus=gpus, linux=linux, cuda=cuda, runtime=runtime
        )
        journal = FileJournal(settings.state_dir / "journal", run=asyncio.to_thread)
        given = Given(bus=bus, host=host, journal=journal, env=process.env, service=service)
        await run(settings, given)

    return Role(kind, start)
