"""A node whose agents read a stand-in for NVIDIA's library, and what is told about one of its GPUs.

Virtual time passes on the node; a question to a GPU that hangs waits in real time.
"""

import json
import os
import select
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from libs.bus.reports import ReportCache
from libs.bus.telemetry import TelemetryCollector
from libs.contracts.facts import Facts
from libs.contracts.gpus import GpuProblem
from libs.contracts.health import Health
from libs.contracts.identities import Writer
from libs.contracts.reports import StateBody, StateKind
from libs.contracts.telemetry import Batch
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.process import NvmlProcess
from libs.kube.resources import NODES
from libs.testing.machines.library_machine import LibraryMachine
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.nvml import VARIABLE, StandIn, library
from services.discovery.cluster.devices import FULL_DEVICES
from services.scheduler import resources
from tests.component.gpus.machine import HeldProcess
from tests.component.processes import Process
from tests.component.scheduler import world
from tests.component.scheduler.world import NEW, POOL
from tests.unit.host.gpus_suite import LONGEST_WAIT

NODE = "a"
DEADLINES = Deadlines(first=10.0, answer=2.0, hung=2.0, late=2.0, kill=20.0)
"""A GPU is hung in the sweep in which it hangs, however little real time passes."""


HEALTH_REASONS = ("GPUFailed", "GPUDegraded", "GPUHealthUnknown", "GPUHealthy")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of Sluice and Kubernetes tell about one GPU."""

    facts: GpuProblem | None
    is_on_page: bool
    """The page for dashboards has its temperature."""
    rules: frozenset[str]
    """The broken rules in the metrics of telemetry's cluster role."""
    device: tuple[str, str]
    """State and reason of the Device."""
    condition: tuple[str, str]
    """Status and reason of the Node's condition."""
    wait: str
    """What the node waits for, as the scheduler answers."""


class World(world.World):
    """One node with eight GPUs, which waits for the next driver in a paused rollout."""

    stand_in: StandIn
    telemetry: Process
    telemetry_cluster: Process
    reports: ReportCache
    batches: list[Batch]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.readers: list[HeldProcess] = []
        """The NVML processes of all agents."""
        self.batches = []
        self.read_in_full = 0
        self.read_in_part: list[set[str]] = []
        """The GPUs that were missing on a page."""

    def add_machine(self, name: str, *, labels: Any, **more: Any) -> SimulatedMachine:
        machine = self.machines[name] = LibraryMachine(
            self._folder / name,
            state=Path(os.environ[VARIABLE]),
            library=library(),
            deadlines=DEADLINES,
            start=self._start_reader,
            name=name,
            model=self._model,
            env=self.sim.env(name),
            cache_reads=True,
            gpus=8,
            **{name: value for name, value in more.items() if name != "gpus"},
        )
        self.stand_in = machine.stand_in
        machine.join(self.cluster.fleet, labels=labels)
        return machine

    def _start_reader(self, path: str) -> NvmlProcess:
        reader = HeldProcess(path)
        self.readers.append(reader)
        return reader

    def hold_back(self, *, stuck: bool) -> None:
        """Let the present NVML processes hang in the driver, which no kill ends, or end that."""
        for reader in self.readers:
            reader.is_held = stuck
            if not stuck:
                reader.kill()
                assert reader.has_ended(within=LONGEST_WAIT)

    def settle(self) -> None:
        """Wait until what the GPUs reported has left the driver."""
        for reader in self.readers:
            if not reader.has_ended():
                assert select.select([reader.replies], [], [], LONGEST_WAIT)[0]

    async def start_agent(self, node: str, writer: Writer) -> Process:
        agent = await super().start_agent(node, writer)
        if writer is Writer.TELEMETRY:
            self.telemetry = agent
        return agent

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Bring the node up, and let it wait for another driver."""
        try:
            await self.complete_first_rollout(NODE)
            self.start(Writer.DISCOVERY_CLUSTER)
            self.telemetry_cluster = self.start(Writer.TELEMETRY_CLUSTER)
            await self.patch(resources.ROLLOUTS, POOL, {"spec": {"brake": "Pause"}})
            await self.apply_policy(NEW)
            bus = self.connect(Writer.TELEMETRY_CLUSTER)
            self.reports = ReportCache(bus=bus, clock=self.sim.clock, cluster="default")
            collector = TelemetryCollector(bus=bus, cluster="default", on_batch=self.batches.append)
            async with self.reports, collector:
                await self.sleep(60)
                yield
        finally:
            self.hold_back(stuck=False)
            await self.power_off(NODE)

    def reported(self, writer: Writer, kind: StateKind) -> StateBody:
        report = self.reports.get(NODE, writer, kind)
        assert report is not None
        return report.open()

    def nvml_problem(self) -> GpuProblem | None:
        facts = self.reported(Writer.DISCOVERY, StateKind.FACTS)
        assert isinstance(facts, Facts)
        return facts.nvml_problem

    def verdict(self, index: int) -> str:
        health = self.reported(Writer.TELEMETRY, StateKind.HEALTH)
        assert isinstance(health, Health)
        return health.gpus[index].state.value

    async def told(self, index: int) -> Told:
        facts = self.reported(Writer.DISCOVERY, StateKind.FACTS)
        assert isinstance(facts, Facts)
        assert facts.gpus is not None
        uuid = self.stand_in.gpus[index].uuid
        device = (await self.kube.get(FULL_DEVICES, f"gpu-{index}-node-{NODE}")).status.health
        wait = (await self.why(NODE)).wait
        assert device is not None
        assert wait is not None
        return Told(
            facts=facts.gpus[index].problem,
            is_on_page=any(uuid in line for line in self.page("DCGM_FI_DEV_GPU_TEMP")),
            rules=frozenset(
                sample.labels["rule"]
                for metric in self.telemetry_cluster.metrics.registry.collect()
                for sample in metric.samples
                if sample.name == "sluice_gpu_unhealthy" and sample.labels["gpu"] == uuid
            ),
            device=(device.state, device.reason),
            condition=await self.condition(),
            wait=wait.code.value,
        )

    def page(self, metric: str) -> list[str]:
        """Return the lines of a metric on the page for dashboards."""
        pages: Any = self.telemetry.result
        text = pages["/metrics"]().body.decode()
        return [line for line in text.splitlines() if line.startswith(f"{metric}{{")]

    async def read_pages(self, indices: set[int]) -> None:
        """Read the page for dashboards every second, and keep which of these GPUs it lacks."""
        uuids = {self.stand_in.gpus[index].uuid for index in indices}
        while True:
            lines = self.page("DCGM_FI_DEV_GPU_TEMP")
            missing = {uuid for uuid in uuids if not any(uuid in line for line in lines)}
            if missing:
                self.read_in_part.append(missing)
            else:
                self.read_in_full += 1
            await self.sleep(1.0)

    async def condition(self) -> tuple[str, str]:
        node = json.loads(await self.kube.request("GET", NODES.path(name=NODE)))
        (found,) = [each for each in node["status"]["conditions"] if each["type"] == "GPUHealthy"]
        return found["status"], found["reason"]

    async def gpu_events(self) -> list[str]:
        """Return the reasons of the Events about the health of GPUs, in order."""
        body = await self.kube.request("GET", "/api/v1/namespaces/default/events")
        found: list[Any] = json.loads(body)["items"]
        ours = [each for each in found if each["reason"] in HEALTH_REASONS]
        by_revision = {int(each["metadata"]["resourceVersion"]): each["reason"] for each in ours}
        return [by_revision[revision] for revision in sorted(by_revision)]

    async def until_told(
        self, index: int, told: Told, *, within: float, but_facts: bool = False
    ) -> None:
        """Wait until all tell this, or all but the facts; fail with what they tell instead."""
        end = self.sim.clock.monotonic() + within
        while (found := await self.told(index)) != told:
            if but_facts and msgspec.structs.replace(found, facts=told.facts) == told:
                break
            assert self.sim.clock.monotonic() < end, found
            await self.sleep(0.1)


def measured(batch: Batch) -> set[int]:
    return {gpu.index for gpu in batch.gpus if gpu.temperature_c is not None}
