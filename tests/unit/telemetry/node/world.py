"""The telemetry agent on a fake machine."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from libs.bus.telemetry import TelemetryCollector
from libs.contracts.identities import Identity, Writer
from libs.contracts.telemetry import Batch
from libs.runtime.http import Page
from libs.testing.simulation import Sim
from services.agent_frame import Given
from services.telemetry.node import agent
from services.telemetry.node.agent import TelemetrySettings
from tests.builders.agent_world import NODE, UID, AgentWorld, in_world_of
from tests.builders.fake_machine import VERSION

INTERVAL = 1.0
"""Seconds between two sweeps."""


class World(AgentWorld):
    WRITER = Writer.TELEMETRY

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        self.pages: agent.Pages = {}
        self.driver.set_version(VERSION)
        self.state_dir = root / "var/lib/sluice"

    async def run_agent(self, given: Given) -> None:
        settings = TelemetrySettings(node=NODE, node_uid=UID, state_dir=self.state_dir)
        self.pages = await agent.run(settings, given)

    def set_load_time(self, at: float) -> None:
        """Let the driver have been loaded at this time."""
        self.machine.set_modules("nvidia")
        os.utime(self.machine.root / "sys/module/nvidia", (at, at))

    def page(self, path: str = "/metrics") -> Page:
        return self.pages[path]()

    def families(self) -> dict[str, Metric]:
        text = self.page().body.decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    def values(self, name: str) -> dict[str, float]:
        """Return a metric's values by GPU."""
        family = self.families().get(name)
        return {each.labels["gpu"]: each.value for each in family.samples} if family else {}

    def counted(self, name: str, **labels: str) -> float | None:
        """Return a metric of the agent itself."""
        return self.metrics.registry.get_sample_value(name, labels)

    @asynccontextmanager
    async def received_batches(self) -> AsyncGenerator[list[Batch]]:
        """Collect batches as the cluster role does."""
        batches: list[Batch] = []
        bus = self.server.connect(Identity(writer=Writer.TELEMETRY_CLUSTER))
        async with TelemetryCollector(bus=bus, cluster="default", on_batch=batches.append):
            yield batches
        bus.kill()


in_world = in_world_of(World)
