"""The discovery agent of a node: what its machine is, said again whenever that has changed."""

import random as randomness
from collections.abc import Callable
from typing import Final

from libs.bus.agent import Agent
from libs.bus.desk.op import Done, Op
from libs.bus.journal import Journal
from libs.bus.place import AgentSettings
from libs.bus.port import Bus
from libs.bus.reporter import Reporter
from libs.contracts.commands import CommandKind
from libs.contracts.events import FactsChanged
from libs.contracts.facts import Facts, Gpu
from libs.host import pci, system
from libs.host.gpus.hold import Hold
from libs.host.gpus.port import Unavailable
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.service import Service
from services.discovery.node.sticky import Known

EVERY: Final = 60.0
"""Seconds between two looks at a machine."""


class DiscoverySettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the discovery agent; the names are those that its pod is rendered with."""

    gpu_labels: bool = True
    """Whether the GPUs themselves are asked what they are."""


class Discovery:
    """Looks at one machine, in one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        hold: Hold | None,
        reporter: Reporter,
        changed: Callable[[tuple[str, ...]], None],
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._hold = hold
        self._reporter = reporter
        self._changed = changed
        self._clock = clock
        self._known = Known()
        self._said: Facts | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(EVERY)

    async def look(self) -> None:
        """Look once; say what is new."""
        self._known = self._known.after(await self._machine.access.do(self._facts))
        before, now = self._said, self._known.facts
        if now == before:
            return
        self._said = now
        self._reporter.report(now)
        if before is not None:
            fields = Facts.__struct_fields__
            self._changed(tuple(one for one in fields if getattr(now, one) != getattr(before, one)))

    def _facts(self) -> Facts:
        tree = self._machine.tree
        gpus, error = self._gpus()
        return Facts(
            pci=pci.devices(tree),
            kernel=system.kernel(tree),
            os=system.operating_system(tree),
            cpu=system.cpu(tree),
            memory=system.memory(tree),
            machine=system.machine(tree),
            gpus=gpus,
            nvml_error=error,
        )

    def _gpus(self) -> tuple[tuple[Gpu, ...] | None, str]:
        """The GPUs, where they can be asked; else why not."""
        if self._hold is None:
            return None, ""
        if self._hold.take() is None:
            return None, self._hold.why
        try:
            return self._hold.gpus.describe(), ""
        except Unavailable as error:
            self._hold.lost(error)
            return None, self._hold.why


async def run(
    settings: DiscoverySettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    clock: Clock,
    random: randomness.Random,
    service: Service,
) -> None:
    """Live as long as the service: one boot of the machine."""
    boot_id = await host.access.do(lambda: system.certain_boot_id(host.tree))
    hold = Hold(host.gpus)

    def changed(facts: tuple[str, ...]) -> None:
        agent.tell(
            FactsChanged(changed=facts),
            id=f"facts/{clock.now():.6f}",
            message=f"not as before: {', '.join(facts)}",
        )

    async def quiesce(_op: Op) -> Done:
        await host.access.do(hold.let_go)
        return Done()

    async def idle(_op: Op) -> Done:
        hold.resume()
        await discovery.look()
        return Done()

    agent = Agent(
        bus=bus,
        clock=clock,
        random=random,
        journal=journal,
        node_uid=settings.uid_of_node(),
        boot_id=boot_id,
        handlers={CommandKind.QUIESCE: quiesce, CommandKind.IDLE: idle},
        checks={},
    )
    hold.quiesced = await agent.open() is CommandKind.QUIESCE
    discovery = Discovery(
        machine=host,
        hold=hold if settings.gpu_labels else None,
        reporter=agent.reporter,
        changed=changed,
        clock=clock,
    )
    agent.start(service)
    service.run_forever("facts", discovery.run())
