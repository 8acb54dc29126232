"""The telemetry agent of a node: samples the GPUs for dashboards and for the fleet's metrics.

It changes nothing on the machine, and holds the driver only while no command forbids it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.bus.agent import Agent, AgentSettings
from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.bus.telemetry import TelemetrySender
from libs.contracts.commands import CommandKind
from libs.host import system
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.env import Env
from libs.runtime.http import HttpServer, HttpSettings, Page
from libs.runtime.logs import logger
from libs.runtime.service import Service
from services.telemetry.node.health import HealthReporter, RecordFile
from services.telemetry.node.page import exporter_page
from services.telemetry.node.sampler import INTERVAL, Sampler, Sweep, TelemetryMetrics

_log = logger()


class TelemetrySettings(AgentSettings, frozen=True, kw_only=True):
    exporter: HttpSettings = HttpSettings(port=9400)
    """Address of the page for dashboards."""
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"
    """The label for the node; dcgm-exporter changed its spelling after 4.5.3-4.8.2."""


_INDEX: Final = b'<html><body><a href="/metrics">Metrics of this node\'s GPUs</a></body></html>\n'

Pages = Mapping[str, Callable[[], Page]]


class SweepPublisher:
    """Samples the GPUs at an interval and sends each sweep as a batch."""

    def __init__(
        self, *, sampler: Sampler, sender: TelemetrySender, clock: Clock, metrics: TelemetryMetrics
    ) -> None:
        self._sampler = sampler
        self._sender = sender
        self._clock = clock
        self._metrics = metrics

    async def run(self) -> None:
        while True:
            await self._sampler.sweep()
            await self._send()
            await self._clock.sleep(INTERVAL)

    async def quiesce(self, _op: Op) -> OpDone | OpFailed:
        """Release the GPUs, and send an empty batch at once."""
        try:
            await self._sampler.release()
        except GpusUnavailable as error:
            return OpFailed("devices-open", str(error))
        finally:
            await self._send()
        return OpDone()

    async def idle(self, _op: Op) -> OpDone:
        """Sample again, and send the sweep at once."""
        await self._sampler.resume()
        await self._send()
        return OpDone()

    async def _send(self) -> None:
        sweep, unsent = self._sampler.current, self._sender.unsent
        await self._sender.send(
            driver_version=sweep.driver_version if sweep else "",
            gpus=list(sweep.samples) if sweep else [],
            xids=self._sampler.xids,
        )
        if self._sender.unsent > unsent:
            self._metrics.count_unsent()


async def run(
    settings: TelemetrySettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    env: Env,
    service: Service,
) -> Pages:
    """Start the agent for one boot of the machine; return the pages for dashboards."""
    boot_id = await host.offload.run(lambda: system.require_boot_id(host.tree))
    node_uid = settings.resolve_node_uid()
    hold, metrics = GpuHandle(host.gpus), TelemetryMetrics(env.metrics)

    async def judge(sweep: Sweep | None, xids: Mapping[str, tuple[int, ...]]) -> None:
        if sweep is None:
            await health.add(None, (), hold.problem, xids)
        else:
            await health.add(sweep.gpus, sweep.samples, None, xids)

    sampler = Sampler(machine=host, hold=hold, clock=env.clock, metrics=metrics, on_sweep=judge)
    sender = TelemetrySender(bus=bus, env=env, node_uid=node_uid, boot_id=boot_id)
    publisher = SweepPublisher(sampler=sampler, sender=sender, clock=env.clock, metrics=metrics)
    agent = Agent(
        bus=bus,
        env=env,
        journal=journal,
        node_uid=node_uid,
        boot_id=boot_id,
        handlers={CommandKind.QUIESCE: publisher.quiesce, CommandKind.IDLE: publisher.idle},
        checks={},
    )
    health = HealthReporter(
        machine=host,
        file=RecordFile(settings.state_dir),
        boot_id=boot_id,
        clock=env.clock,
        report=agent.reporter.report,
    )
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    await health.open()
    agent.start(service)
    service.run_forever("sweeps", publisher.run())
    service.ready_when("gpus", lambda: sampler.problem or None)

    def metrics_page() -> Page:
        sweep = sampler.current
        text = sweep and exporter_page(
            sweep, node=settings.node, hostname_label=settings.hostname_label
        )
        return Page(text or b"", content_type=CONTENT_TYPE_PLAIN_0_0_4)

    return {
        "/": lambda: Page(_INDEX, content_type="text/html; charset=utf-8"),
        "/metrics": metrics_page,
        "/health": lambda: Page(b"OK"),
    }


async def run_and_export(settings: TelemetrySettings, /, *, service: Service, **ports: Any) -> None:
    """Start the agent, and serve its pages over HTTP."""
    pages = await run(settings, service=service, **ports)
    exporter = await service.enter("exporter", HttpServer(settings.exporter, pages))
    host, port = exporter.address
    _log.info("exporter started", host=host, port=port)
