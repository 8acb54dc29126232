"""The telemetry agent of a node: it measures the GPUs, for dashboards and for the fleet's page.

It changes nothing, and holds the driver only while it may.
"""

import random as randomness
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.bus.agent import Agent
from libs.bus.desk.op import Done, Op
from libs.bus.fanin import Sender
from libs.bus.journal import Journal
from libs.bus.port import Bus
from libs.contracts.commands import CommandKind
from libs.host import system
from libs.host.gpus.hold import Hold
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.http import Page
from libs.runtime.ids import Ids
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from services.telemetry.node.meters import TelemetryMeters
from services.telemetry.node.page import page
from services.telemetry.node.sampler import EVERY, Sampler
from services.telemetry.node.settings import TelemetrySettings

_INDEX: Final = b'<html><body><a href="/metrics">Metrics of this node\'s GPUs</a></body></html>\n'

Pages = Mapping[str, Callable[[], Page]]


class Telemetry:
    """Measures one machine, and says what it saw."""

    def __init__(
        self, *, sampler: Sampler, sender: Sender, clock: Clock, meters: TelemetryMeters
    ) -> None:
        self._sampler = sampler
        self._sender = sender
        self._clock = clock
        self._meters = meters

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._sampler.look()
            await self._tell()
            await self._clock.sleep(EVERY)

    async def quiesce(self, _op: Op) -> Done:
        """Let go; who reads the batches learns at once that there is nothing to see."""
        await self._sampler.let_go()
        await self._tell()
        return Done()

    async def idle(self, _op: Op) -> Done:
        """Measure, and say so at once."""
        await self._sampler.resume()
        await self._tell()
        return Done()

    async def _tell(self) -> None:
        sweep, unsent = self._sampler.current, self._sender.unsent
        await self._sender.send(
            driver_version=sweep.driver_version if sweep else "",
            gpus=list(sweep.samples) if sweep else [],
            xids=self._sampler.xids,
        )
        if self._sender.unsent > unsent:
            self._meters.unsent()


async def run(
    settings: TelemetrySettings,
    *,
    bus: Bus,
    host: Machine,
    journal: Journal,
    clock: Clock,
    random: randomness.Random,
    ids: Ids,
    metrics: Metrics,
    service: Service,
) -> Pages:
    """Live as long as the service, in one boot of the machine. The pages are those that dashboards
    read: whoever has sockets serves them.
    """
    boot_id = await host.access.do(lambda: system.certain_boot_id(host.tree))
    node_uid = settings.uid_of_node()
    hold, meters = Hold(host.gpus), TelemetryMeters(metrics)
    sampler = Sampler(machine=host, hold=hold, clock=clock, meters=meters)
    sender = Sender(bus=bus, clock=clock, ids=ids, node_uid=node_uid, boot_id=boot_id)
    telemetry = Telemetry(sampler=sampler, sender=sender, clock=clock, meters=meters)
    agent = Agent(
        bus=bus,
        clock=clock,
        random=random,
        journal=journal,
        node_uid=node_uid,
        boot_id=boot_id,
        handlers={CommandKind.QUIESCE: telemetry.quiesce, CommandKind.IDLE: telemetry.idle},
        checks={},
    )
    hold.quiesced = await agent.open() is CommandKind.QUIESCE
    agent.start(service)
    service.run_forever("sweeps", telemetry.run())
    service.ready_when("gpus", lambda: sampler.trouble or None)
    return _pages(settings, sampler)


def _pages(settings: TelemetrySettings, sampler: Sampler) -> Pages:
    def metrics() -> Page:
        sweep = sampler.current
        text = sweep and page(sweep, node=settings.node, hostname_label=settings.hostname_label)
        return Page(text or b"", content_type=CONTENT_TYPE_PLAIN_0_0_4)

    return {
        "/": lambda: Page(_INDEX, content_type="text/html; charset=utf-8"),
        "/metrics": metrics,
        "/health": lambda: Page(b"OK"),
    }
