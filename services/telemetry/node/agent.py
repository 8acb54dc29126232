"""The telemetry agent of a node: it measures the GPUs, for dashboards and for the fleet's page.

It changes nothing, and holds the driver only while it may.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.bus.agent import Agent
from libs.bus.agent_settings import AgentSettings
from libs.bus.commands.op import Op, OpDone
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.bus.telemetry import TelemetrySender
from libs.contracts.commands import CommandKind
from libs.host import system
from libs.host.gpus.port import GpuHandle
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.http import HttpSettings, Page
from libs.runtime.service import Service
from services.telemetry.node.metrics import TelemetryMetrics
from services.telemetry.node.page import exporter_page
from services.telemetry.node.sampler import INTERVAL, Sampler


class TelemetrySettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the telemetry agent."""

    exporter: HttpSettings = HttpSettings(port=9400)
    """Where the page for dashboards is."""
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"
    """How samples call the node: dcgm-exporter spells it small after 4.5.3-4.8.2."""


_INDEX: Final = b'<html><body><a href="/metrics">Metrics of this node\'s GPUs</a></body></html>\n'

Pages = Mapping[str, Callable[[], Page]]


class SweepPublisher:
    """Measures one machine, and says what it saw."""

    def __init__(
        self, *, sampler: Sampler, sender: TelemetrySender, clock: Clock, metrics: TelemetryMetrics
    ) -> None:
        self._sampler = sampler
        self._sender = sender
        self._clock = clock
        self._meters = metrics

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._sampler.sweep()
            await self._tell()
            await self._clock.sleep(INTERVAL)

    async def quiesce(self, _op: Op) -> OpDone:
        """Let go; who reads the batches learns at once that there is nothing to see."""
        await self._sampler.release()
        await self._tell()
        return OpDone()

    async def idle(self, _op: Op) -> OpDone:
        """Measure, and say so at once."""
        await self._sampler.resume()
        await self._tell()
        return OpDone()

    async def _tell(self) -> None:
        sweep, unsent = self._sampler.current, self._sender.unsent
        await self._sender.send(
            driver_version=sweep.driver_version if sweep else "",
            gpus=list(sweep.samples) if sweep else [],
            xids=self._sampler.xids,
        )
        if self._sender.unsent > unsent:
            self._meters.count_unsent()


async def run(
    settings: TelemetrySettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> Pages:
    """Live as long as the service, in one boot of the machine. The pages are those that dashboards
    read: whoever has sockets serves them.
    """
    boot_id = await host.offload.do(lambda: system.require_boot_id(host.tree))
    node_uid = settings.resolve_node_uid()
    hold, meters = GpuHandle(host.gpus), TelemetryMetrics(env.metrics)
    sampler = Sampler(machine=host, hold=hold, clock=env.clock, metrics=meters)
    sender = TelemetrySender(bus=bus, env=env, node_uid=node_uid, boot_id=boot_id)
    telemetry = SweepPublisher(sampler=sampler, sender=sender, clock=env.clock, metrics=meters)
    agent = Agent(
        bus=bus,
        env=env,
        journal=journal,
        node_uid=node_uid,
        boot_id=boot_id,
        handlers={CommandKind.QUIESCE: telemetry.quiesce, CommandKind.IDLE: telemetry.idle},
        checks={},
    )
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    agent.start(service)
    service.run_forever("sweeps", telemetry.run())
    service.ready_when("gpus", lambda: sampler.trouble or None)
    return _pages(settings, sampler)


def _pages(settings: TelemetrySettings, sampler: Sampler) -> Pages:
    def metrics() -> Page:
        sweep = sampler.current
        text = sweep and exporter_page(
            sweep, node=settings.node, hostname_label=settings.hostname_label
        )
        return Page(text or b"", content_type=CONTENT_TYPE_PLAIN_0_0_4)

    return {
        "/": lambda: Page(_INDEX, content_type="text/html; charset=utf-8"),
        "/metrics": metrics,
        "/health": lambda: Page(b"OK"),
    }
