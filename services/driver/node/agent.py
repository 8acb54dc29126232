"""The driver agent of a node: desk, gate, checks and reports around one machine.

It is the only one who changes the machine's driver, and does so by command alone.
"""

from libs.bus.agent import Agent
from libs.bus.agent_settings import AgentSettings
from libs.bus.commands.op import CommandHandler, Op, OpDone, OpFailed
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CheckKind, CommandKind
from libs.host import driver_files, system
from libs.host.machine import Machine
from libs.runtime.env import Env
from libs.runtime.fatal import Fatal
from libs.runtime.service import Service
from services.driver.node.checks import Checks
from services.driver.node.gate_keeper import GateKeeper
from services.driver.node.reports import DriverReporter
from services.driver.node.swap import SwapHandler


class DriverAgentSettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the driver agent."""

    driver_dir: str = driver_files.ROOT
    """Where the machine sees the driver container's root."""
    change_this_machine: bool = False
    """Whether the real kernel may be asked to unload modules."""
    toolkit: bool = True
    """Whether the container runtime is to be told of GPUs."""
    toolkit_dir: str = "/usr/local/nvidia"
    runtime_class: str = "nvidia"
    mig_manager: bool = False
    """Whether GPUs are sliced as their node's label says."""
    mig_default: str = ""
    """The layout of a node without that label."""


async def run(
    settings: DriverAgentSettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> None:
    """Live as long as the service: one boot of the machine."""
    if host.linux is None:
        raise Fatal("the driver agent was given no kernel: it cannot unload a driver")
    boot_id = await host.offload.do(lambda: system.require_boot_id(host.tree))
    checks = Checks(machine=host)
    swapping = SwapHandler(
        machine=host, linux=host.linux, clock=env.clock, root=settings.driver_dir
    )
    handlers: dict[CommandKind, CommandHandler] = {
        CommandKind.QUIESCE: _at_rest,
        CommandKind.IDLE: _at_rest,
    }

    async def swap(op: Op) -> OpDone | OpFailed:
        ended = await swapping(op)
        await saying.report()
        return ended

    handlers[CommandKind.SWAP] = swap
    agent = Agent(
        bus=bus,
        env=env,
        journal=journal,
        node_uid=settings.resolve_node_uid(),
        boot_id=boot_id,
        handlers=handlers,
        checks={CheckKind.PREFLIGHT: checks.preflight, CheckKind.HOLDERS: checks.holders},
    )
    keeper = GateKeeper(machine=host, desk=agent.commands, clock=env.clock)
    saying = DriverReporter(
        machine=host, reporter=agent.reporter, gate_keeper=keeper, clock=env.clock
    )
    await agent.open()
    agent.start(service)
    service.run_forever("gate", keeper.run())
    service.run_forever("facts", saying.run())
    service.ready_when("gate", lambda: keeper.shut_reason or None)


async def _at_rest(_op: Op) -> OpDone:
    """It holds no device itself; what an `idle` says of what is proven is the keeper's to read."""
    return OpDone()
