"""A machine's GPUs in a test's hands, and the agent that measures them, in virtual time."""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from libs.bus.telemetry import TelemetryCollector
from libs.contracts.facts import Gpu
from libs.contracts.identities import Identity, Writer
from libs.contracts.telemetry import Batch, GpuSample
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.runtime.env import SeededIds
from libs.runtime.http import Page
from libs.runtime.metrics import Metrics
from libs.testing.simulation import make_env
from services.telemetry.node import agent
from services.telemetry.node.agent import TelemetrySettings
from tests.unit import agent_world
from tests.unit.agent_world import NODE, UID, AgentContext, AgentWorld, Story

DRIVER = "580.95.05"


def gpu(index: int) -> Gpu:
    return Gpu(
        uuid=f"GPU-{index}",
        index=index,
        minor=index + 4,
        pci=f"0000:{index + 0x1A:02x}:00.0",
        name="NVIDIA H100 80GB HBM3",
        memory_mib=81559,
    )


def sample(one: Gpu, **more: int | float | None) -> GpuSample:
    return GpuSample(uuid=one.uuid, index=one.index, pci=one.pci, **more)  # pyright: ignore[reportArgumentType]


class GpuWorld:
    """Two GPUs under a driver that comes and goes, and whether anybody holds it."""

    def __init__(self) -> None:
        self.library: DriverLibrary | None = DriverLibrary(driver_version=DRIVER)
        self.held = 0
        self.mute = set[int]()
        self.gone = False
        self.on_open: Callable[[], object] = lambda: None
        self.gpus = MemoryGpus(
            [gpu(0), gpu(1)],
            driver=self._driver,
            samples=self._read,
            held=self._held,
        )
        self.settings = TelemetrySettings(node=NODE, node_uid=UID)
        self.pages: agent.Pages = {}
        self.metrics = Metrics(version="0")
        self._chance = random.Random(1)

    def _held(self, held: bool) -> None:
        self.held += 1 if held else -1

    def _driver(self) -> DriverLibrary | None:
        self.on_open()
        return self.library

    def _read(self, one: Gpu) -> GpuSample:
        if self.gone:
            raise GpusUnavailable("the driver's library does not answer")
        return sample(one) if one.index in self.mute else sample(one, temperature_c=40 + one.index)

    async def start(self, given: AgentContext) -> None:
        """One process of the agent."""
        self.metrics = Metrics(version="0")
        self.pages = await agent.run(
            self.settings,
            bus=given.bus,
            host=agent_world.with_gpus(given.host, self.gpus),
            journal=given.journal,
            env=make_env(
                clock=given.clock,
                random=given.random,
                ids=SeededIds(self._chance),
                metrics=self.metrics,
            ),
            service=given.service,
        )

    def page(self, path: str = "/metrics") -> Page:
        return self.pages[path]()

    def families(self) -> dict[str, Metric]:
        """What a scraper makes of the page."""
        return {one.name: one for one in text_string_to_metric_families(self.page().body.decode())}

    def values(self, name: str) -> dict[str, float]:
        """Of a metric, by GPU."""
        family = self.families().get(name)
        return {one.labels["gpu"]: one.value for one in family.samples} if family else {}

    def counted(self, name: str, **labels: str) -> float | None:
        """What the agent measures of itself."""
        return self.metrics.registry.get_sample_value(name, labels)

    def play(self, story: Story) -> None:
        """In virtual time."""
        agent_world.play(story, writer=Writer.TELEMETRY, start=self.start)


@asynccontextmanager
async def received_batches(ground: AgentWorld) -> AsyncGenerator[list[Batch]]:
    """The batches, as the fleet's collector takes them."""
    batches: list[Batch] = []
    bus = ground.server.connect(Identity(writer=Writer.TELEMETRY_CLUSTER))
    async with TelemetryCollector(bus=bus, cluster="default", on_batch=batches.append):
        yield batches
    bus.kill()
