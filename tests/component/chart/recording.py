"""The metrics of a fleet through an upgrade, as Prometheus would have scraped them.

All services and agents run in virtual time; their pages are read every half minute.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from prometheus_client import ProcessCollector

from libs.bus.connections import flood_counter
from libs.contracts.identities import Writer
from libs.runtime.metrics import Metrics
from libs.testing.stage.worlds import SteadyWorld
from services.signin.claims import Cause
from services.signin.metrics import SignInMetrics
from services.telemetry.cluster import role as telemetry_cluster
from tests.component.campaign.admin import NEW, OLD
from tests.component.campaign.roles import ROLES
from tests.component.campaign.world import CampaignWorld, run_world
from tests.component.processes import Backends, Process
from tests.component.scheduler.test_diagnoses import lose_fabric_manager

NODES: Final = ("n1", "n2", "n3")
INTERVAL: Final = 30.0
SILENT_NODE: Final = "n3"
_JOBS: Final = {writer: writer.value.removesuffix("-cluster") for writer in ROLES}
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"')


class Scrape(msgspec.Struct, frozen=True, kw_only=True):
    """A page of one process at a time."""

    at: float
    job: str
    port: str
    page: str


class Recording(msgspec.Struct, frozen=True):
    scrapes: tuple[Scrape, ...]

    @property
    def began(self) -> float:
        return self.scrapes[0].at

    @property
    def ended(self) -> float:
        return self.scrapes[-1].at

    def open_metrics(self) -> str:
        """Return all samples with their times and the labels of their targets."""
        lines: list[str] = []
        for scrape in self.scrapes:
            target = f'job="{scrape.job}",instance="{scrape.job}:{scrape.port}"'
            for name, labels, value in _samples(scrape.page):
                joined = f"{target},{labels}" if labels else target
                lines.append(f"{name}{{{joined}}} {value} {scrape.at:.3f}")
        return "\n".join([*lines, "# EOF", ""])

    def labels(self) -> Mapping[str, frozenset[str]]:
        """Return the names of the labels of each metric."""
        found: dict[str, set[str]] = {}
        for scrape in self.scrapes:
            for name, labels, _ in _samples(scrape.page):
                found.setdefault(name, {"job", "instance"}).update(_LABEL.findall(labels))
        return {name: frozenset(labels) for name, labels in found.items()}

    def last_page(self, job: str, port: str) -> str:
        """Return the last page of a process."""
        return next(
            each.page for each in reversed(self.scrapes) if (each.job, each.port) == (job, port)
        )


def _samples(page: str) -> list[tuple[str, str, str]]:
    """Return name, labels and value of each sample of a page."""
    matches = (_SAMPLE.fullmatch(line) for line in page.splitlines() if not line.startswith("#"))
    return [(match[1], match[2] or "", match[3]) for match in matches if match is not None]


class _Recorder:
    """Reads the pages of all processes."""

    def __init__(self, world: CampaignWorld) -> None:
        self._world = world
        self.scrapes: list[Scrape] = []
        self._telemetry = Process(
            cast(Backends, world), Writer.TELEMETRY_CLUSTER, _run_telemetry, name="telemetry-1"
        )
        self._seen = set[int]()
        self._sign_in = Metrics(version="1")
        sign_ins = SignInMetrics(self._sign_in)
        sign_ins.granted()
        sign_ins.refused(next(iter(Cause)))
        flood_counter(self._sign_in)
        self._watch(self._sign_in)
        self._watch(self._telemetry.metrics)
        self._telemetry.metrics.watch(self._telemetry.service)

    async def run(self) -> None:
        while True:
            await self._world.sleep(INTERVAL)
            self._scrape()

    async def end(self) -> None:
        await self._telemetry.kill()

    def _scrape(self) -> None:
        for writer in ROLES:
            if writer is Writer.TELEMETRY_CLUSTER:
                continue
            role = self._world.process_of(writer)
            if id(role) not in self._seen:
                self._seen.add(id(role))
                self._watch(role.env.metrics)
                role.env.metrics.watch(role.service)
            self._add(_JOBS[writer], role.env.metrics)
        self._add("telemetry", self._telemetry.metrics)
        self._add("signin", self._sign_in)
        if self._telemetry.result is not None:
            pages: Any = self._telemetry.result
            self._add_page("telemetry", "9400", pages["/metrics"]().body)

    def _add(self, job: str, metrics: Metrics) -> None:
        self._add_page(job, "8080", metrics.render())

    def _add_page(self, job: str, port: str, page: bytes) -> None:
        at = self._world.sim.clock.now()
        self.scrapes.append(Scrape(at=at, job=job, port=port, page=page.decode()))

    @staticmethod
    def _watch(metrics: Metrics) -> None:
        """Add what every process has: its CPU time and memory."""
        ProcessCollector(registry=metrics.registry)


async def _run_telemetry(process: Process) -> object:
    return await telemetry_cluster.run(
        telemetry_cluster.TelemetryClusterSettings(),
        kube=process.transport,
        bus=process.bus,
        env=process.env,
        service=process.service,
    )


def record() -> Recording:
    """Play an upgrade: one node is upgraded, one fails and halts it, one becomes silent."""

    async def story(world: CampaignWorld) -> Recording:
        await world.install()
        await world.sleep(1)
        recorder = _Recorder(world)
        world.run_in_background(recorder.run())
        for name in NODES:
            world.add_machine(name)
        await world.apply_policy(OLD, maxUnavailable=1)
        world.keep_running(*(each for each in ROLES if each is not Writer.TELEMETRY_CLUSTER))
        assert await world.until(world.is_rolled_out, within=600.0)
        await world.sleep(120)
        world.nodes["n2"].machine.start_process(0, 1)
        lose_fabric_manager(world.nodes["n1"].machine)
        await world.apply_policy(NEW, maxUnavailable=1)
        await world.sleep(480)
        world.nodes["n1"].machine.report(2, 79)
        world.nodes[SILENT_NODE].machine.power_off()
        await world.sleep(300)
        await recorder.end()
        return Recording(tuple(recorder.scrapes))

    return run_world(story, seed=1, model=SteadyWorld())
