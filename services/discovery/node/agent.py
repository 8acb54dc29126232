"""The discovery agent of a node: what its machine is, said again whenever that has changed."""

from collections.abc import Callable
from typing import Final

from libs.bus.agent import Agent
from libs.bus.agent_settings import AgentSettings
from libs.bus.commands.op import Op, OpDone
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.bus.reporter import Reporter
from libs.contracts.commands import CommandKind
from libs.contracts.events import FactsEvent
from libs.contracts.facts import Facts, Gpu
from libs.host import pci, system
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.discovery.node.known_facts import KnownFacts

INTERVAL: Final = 60.0
"""Seconds between two looks at a machine."""


class DiscoverySettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the discovery agent; the names are those that its pod is rendered with."""

    gpu_labels: bool = True
    """Whether the GPUs themselves are asked what they are."""


class MachineReporter:
    """Looks at one machine, in one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        hold: GpuHandle | None,
        reporter: Reporter,
        on_change: Callable[[tuple[str, ...]], None],
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._hold = hold
        self._reporter = reporter
        self._changed = on_change
        self._clock = clock
        self._known = KnownFacts()
        self._said: Facts | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.report()
            await self._clock.sleep(INTERVAL)

    async def report(self) -> None:
        """Look once; say what is new."""
        self._known = self._known.after(await self._machine.offload.do(self._facts))
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
        if self._hold.acquire() is None:
            return None, self._hold.why
        try:
            return self._hold.gpus.describe(), ""
        except GpusUnavailable as error:
            self._hold.mark_lost(error)
            return None, self._hold.why


async def run(
    settings: DiscoverySettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> None:
    """Live as long as the service: one boot of the machine."""
    boot_id = await host.offload.do(lambda: system.require_boot_id(host.tree))
    hold = GpuHandle(host.gpus)

    def changed(facts: tuple[str, ...]) -> None:
        agent.publish_event(
            FactsEvent(changed=facts),
            id=f"facts/{env.clock.now():.6f}",
            message=f"not as before: {', '.join(facts)}",
        )

    async def quiesce(_op: Op) -> OpDone:
        await host.offload.do(hold.release)
        return OpDone()

    async def idle(_op: Op) -> OpDone:
        hold.resume()
        await discovery.report()
        return OpDone()

    agent = Agent(
        bus=bus,
        env=env,
        journal=journal,
        node_uid=settings.resolve_node_uid(),
        boot_id=boot_id,
        handlers={CommandKind.QUIESCE: quiesce, CommandKind.IDLE: idle},
        checks={},
    )
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    discovery = MachineReporter(
        machine=host,
        hold=hold if settings.gpu_labels else None,
        reporter=agent.reporter,
        on_change=changed,
        clock=env.clock,
    )
    agent.start(service)
    service.run_forever("facts", discovery.run())
