"""The driver agent of a node: desk, gate, checks and reports around one machine.

It is the only one who changes the machine's driver, and does so by command alone.
"""

import random as randomness

from libs.bus.agent import Agent
from libs.bus.desk.op import Done, Failed, Handler, Op
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CheckKind, CommandKind
from libs.host import system
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal
from libs.runtime.service import Service
from services.driver.node.checks import Checks
from services.driver.node.keeper import Keeper
from services.driver.node.saying import Saying
from services.driver.node.settings import DriverAgentSettings
from services.driver.node.swap import Swapping


async def run(
    settings: DriverAgentSettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    clock: Clock,
    random: randomness.Random,
    service: Service,
) -> None:
    """Live as long as the service: one boot of the machine."""
    if host.linux is None:
        raise Fatal("the driver agent was given no kernel: it cannot unload a driver")
    boot_id = await host.access.do(lambda: system.certain_boot_id(host.tree))
    checks = Checks(machine=host)
    swapping = Swapping(machine=host, linux=host.linux, clock=clock, root=settings.driver_dir)
    handlers: dict[CommandKind, Handler] = {
        CommandKind.QUIESCE: _at_rest,
        CommandKind.IDLE: _at_rest,
    }

    async def swap(op: Op) -> Done | Failed:
        ended = await swapping(op)
        await saying.say()
        return ended

    handlers[CommandKind.SWAP] = swap
    agent = Agent(
        bus=bus,
        clock=clock,
        random=random,
        journal=journal,
        node_uid=settings.uid_of_node(),
        boot_id=boot_id,
        handlers=handlers,
        checks={CheckKind.PREFLIGHT: checks.preflight, CheckKind.HOLDERS: checks.holders},
    )
    keeper = Keeper(machine=host, desk=agent.desk, clock=clock)
    saying = Saying(machine=host, reporter=agent.reporter, keeper=keeper, clock=clock)
    await agent.open()
    agent.start(service)
    service.run_forever("gate", keeper.run())
    service.run_forever("facts", saying.run())
    service.ready_when("gate", lambda: keeper.why or None)


async def _at_rest(_op: Op) -> Done:
    """It holds no device itself; what an `idle` says of what is proven is the keeper's to read."""
    return Done()
