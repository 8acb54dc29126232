"""What each agent of a node is given, and how each begins.

    async def run(settings: DiscoverySettings, given: Given) -> None:
        boot = await given.boot(settings)
        agent = boot.agent({CommandKind.QUIESCE: quiesce, CommandKind.IDLE: idle})
        hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
        agent.start(given.service)
        given.service.run_forever("facts", reporter.run())

The journal is read first (`open`): it says which command is in effect, such as one that forbids to
hold the driver, long before the bus is there. Only then may the driver be held; and only then the
agent reads its slot and reports (`start`), for a command that comes must find everything ready.
"""

from collections.abc import Mapping

import msgspec

from libs.bus.agent import Agent, AgentSettings
from libs.bus.commands.checks import CheckHandler
from libs.bus.commands.executor import BeforeStart, CommandHandler, do_nothing_before_start
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CheckKind, CommandKind
from libs.host import system
from libs.host.machine import Machine
from libs.runtime.env import Env
from libs.runtime.service import Service


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The connections of an agent, its machine, and the service in which its tasks run."""

    bus: Bus
    host: Machine
    journal: Journal
    env: Env
    service: Service

    async def boot(self, settings: AgentSettings) -> "Boot":
        """Return this boot of the machine; raise `Fatal` if boot or Node cannot be told apart."""
        boot_id = await self.host.offload.run(lambda: system.require_boot_id(self.host.tree))
        return Boot(given=self, node_uid=settings.resolve_node_uid(), boot_id=boot_id)


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """One boot of the machine, under its present Node: reports of others are not its own."""

    given: Given
    node_uid: str
    boot_id: str

    def agent(
        self,
        handlers: Mapping[CommandKind, CommandHandler],
        *,
        checks: Mapping[CheckKind, CheckHandler] = {},
        before_start: BeforeStart = do_nothing_before_start,
    ) -> Agent:
        """Return the agent's side of the bus, which carries out these commands and checks."""
        return Agent(
            bus=self.given.bus,
            env=self.given.env,
            journal=self.given.journal,
            node_uid=self.node_uid,
            boot_id=self.boot_id,
            handlers=handlers,
            checks=checks,
            before_start=before_start,
        )
