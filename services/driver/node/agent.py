"""The driver agent of a node: commands, gate, checks and reports of one machine.

It is the only component that changes the machine's driver, and does so by command alone.
"""

from libs.bus.agent import Agent, AgentSettings
from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CheckKind, CommandKind
from libs.host import driver_files, system
from libs.host.linux import RealKernelForbidden, RealLinux
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.runtime.env import Env
from libs.runtime.fatal import Fatal
from libs.runtime.service import Service
from services.driver.node.checks import Checks
from services.driver.node.gate_keeper import GateKeeper
from services.driver.node.reports import DriverReporter
from services.driver.node.swap import SwapHandler


class DriverAgentSettings(AgentSettings, frozen=True, kw_only=True):
    driver_dir: str = driver_files.ROOT
    """Path on the machine of the driver container's root."""
    change_this_machine: bool = False
    """Allow the agent to unload modules of the real kernel."""
    toolkit: bool = True
    """Configure the container runtime for GPUs."""
    toolkit_dir: str = "/usr/local/nvidia"
    runtime_class: str = "nvidia"
    mig_manager: bool = False
    """Partition GPUs as the node's label says."""
    mig_default: str = ""
    """The MIG layout of a node without that label."""


def make_linux(settings: DriverAgentSettings, tree: Tree) -> RealLinux:
    """Return the kernel of this machine; fatal if the settings forbid to change it."""
    try:
        return RealLinux(tree, change_this_machine=settings.change_this_machine)
    except RealKernelForbidden as error:
        raise Fatal(str(error)) from error


async def run(
    settings: DriverAgentSettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> None:
    """Start the agent for one boot of the machine."""
    if host.linux is None:
        raise Fatal("the driver agent was given no kernel: it cannot unload a driver")
    boot_id = await host.offload.do(lambda: system.require_boot_id(host.tree))
    checks = Checks(machine=host)
    handle_swap = SwapHandler(
        machine=host, linux=host.linux, clock=env.clock, root=settings.driver_dir
    )

    async def swap(op: Op) -> OpDone | OpFailed:
        """Report the machine before the result of the op that changed it."""
        result = await handle_swap(op)
        await reporter.report()
        return result

    agent = Agent(
        bus=bus,
        env=env,
        journal=journal,
        node_uid=settings.resolve_node_uid(),
        boot_id=boot_id,
        handlers={
            CommandKind.QUIESCE: _do_nothing,
            CommandKind.IDLE: _do_nothing,
            CommandKind.SWAP: swap,
        },
        checks={CheckKind.PREFLIGHT: checks.preflight, CheckKind.HOLDERS: checks.holders},
    )
    gate_keeper = GateKeeper(machine=host, commands=agent.commands, clock=env.clock)
    reporter = DriverReporter(
        machine=host, reporter=agent.reporter, gate_keeper=gate_keeper, clock=env.clock
    )
    await agent.open()
    agent.start(service)
    service.run_forever("gate", gate_keeper.run())
    service.run_forever("facts", reporter.run())
    service.ready_when("gate", lambda: gate_keeper.shut_reason or None)


async def _do_nothing(_op: Op) -> OpDone:
    """The agent holds no device; the gate keeper reads what an `idle` says is proven."""
    return OpDone()
