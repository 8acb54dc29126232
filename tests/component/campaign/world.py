"""A whole system in virtual time: every service, a simulated cluster, bus, and machines.

Nothing is judged here.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from structlog.testing import capture_logs

from demo.node import SimulatedNode
from libs.audit import LostJournal
from libs.bus.events import RecordedEvent, read_events
from libs.bus.permissions import permissions
from libs.bus.port import Bus, FromSequence
from libs.contracts.events import Event
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry, Revision
from libs.forecast.world import WorldModel
from libs.host.machine import InlineOffload
from libs.kube.client import Kube
from libs.policy.crds import CEL_RULES
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import BusFaults, LocalServer, TraceRecord
from libs.testing.bus.local_bus import LocalBus
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.simulation import Sim
from libs.testing.simulation import run as simulate
from tests.component.campaign.admin import CampaignAdmin
from tests.component.campaign.roles import ROLES, RoleEnvironment, RoleProcess

T = TypeVar("T")

RESTARTS = 5.0
"""Seconds until a cluster role that has ended is started again, as its Deployment would."""


class CampaignWorld(CampaignAdmin):
    """What a story has in its hands."""

    def __init__(
        self, sim: Sim, root: Path, *, model: WorldModel, faults: BusFaults | None = None
    ) -> None:
        self.sim = sim
        self.root = root
        self.model = model
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=CEL_RULES
        )
        self.bus = LocalServer(env=sim.env("bus"), faults=faults)
        super().__init__(self._kube_for("person", "kubectl"), self.server.transport(user="person"))
        self.cluster = SimulatedCluster(
            self._kube_for,
            model=model,
            env=sim.env("cluster"),
        )
        self.nodes: dict[str, SimulatedNode] = {}
        self.roles: list[RoleProcess] = []
        self.failures: list[str] = []
        """Cluster roles that ended by themselves, and why."""
        self._forgotten: list[Entry] = []
        self.forgot: list[LostJournal] = []
        self._listeners: list[Callable[[TraceRecord], None]] = []
        self.bus.add_tracer(self._heard)
        self._ground = RoleEnvironment(sim, server=self.server, bus=self.bus)
        self._tasks: list[asyncio.Task[None]] = []
        self._kept: dict[Writer, RoleProcess] = {}
        self._over = asyncio.Event()

    def _kube_for(self, user: str, manager: str) -> Kube:
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    def add_machine(self, name: str) -> None:
        """Another one, switched on: its kubelet joins the cluster."""
        sim = self.sim
        machine = SimulatedMachine(
            self.root / name,
            name=name,
            model=self.model,
            env=sim.env(name),
            cache_reads=True,
        )
        station = self.nodes[name] = SimulatedNode(
            machine,
            kube_for=self._kube_for,
            connect=self._join,
            cut=_cut,
            model=self.model,
            access=InlineOffload(),
            env=sim.env(),
            random_for=sim.random_for,
        )
        self._tasks.append(asyncio.create_task(station.run(), name=f"machine {name}"))

    async def _join(self, service: Service, identity: Identity) -> Bus:
        return await service.enter("bus", _connection(self.bus, identity))

    # Cluster roles.

    def start(self, writer: Writer) -> RoleProcess:
        """Another process of the role."""
        role = RoleProcess(self._ground, writer, number=len(self.roles) + 1)
        self.roles.append(role)
        return role

    def keep_running(self, *writers: Writer) -> None:
        """One process of each, and another one whenever it has ended."""
        for writer in writers or ROLES:
            self._tasks.append(asyncio.create_task(self._keep(writer), name=f"keeps {writer}"))

    async def _keep(self, writer: Writer) -> None:
        while True:
            role = self._kept[writer] = self.start(writer)
            await asyncio.wait({role.task})
            # While the bus is away a role cannot start; its Deployment tries again.
            if role.failure and "Away: " not in role.failure:
                self.failures.append(f"{role.name}: {role.failure}")
            await self.sleep(RESTARTS)

    def process_of(self, writer: Writer) -> RoleProcess:
        """The process that runs now, or ran last."""
        return self._kept[writer]

    def run_in_background(self, doing: Coroutine[Any, Any, None]) -> None:
        """It goes on beside the story, and ends with it at the latest."""
        self._tasks.append(asyncio.create_task(doing, name="later"))

    def run_after(self, seconds: float, do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """What began ends so much later, and at once when all troubles end."""
        task = asyncio.create_task(self._after(seconds, do), name="after")
        self._tasks.append(task)

    async def _after(self, seconds: float, do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        over = asyncio.create_task(self._over.wait(), name="over")
        try:
            await asyncio.wait({over}, timeout=seconds)
        finally:
            over.cancel()
        await do()

    async def end_faults(self) -> None:
        """All that was to end later ends now, and nothing goes wrong any more."""
        self.server.faults.clear()
        self.bus.stop_faults()
        self.bus.start()
        self._over.set()
        await self.sleep(1)

    def add_bus_listener(self, listener: Callable[[TraceRecord], None]) -> None:
        """Tell it all that happens on the bus from now on."""
        self._listeners.append(listener)

    def _heard(self, it: TraceRecord) -> None:
        for listener in tuple(self._listeners):
            listener(it)

    def record_lost_entries(self, entries: Iterable[Entry]) -> None:
        """An agent had written them, and they are lost to it."""
        lost = list(entries)
        whose = sorted({(one.node_uid, one.component) for one in lost})
        now = self.sim.clock.now()
        self._forgotten += lost
        self.forgot += [LostJournal(node_uid=uid, component=one, time=now) for uid, one in whose]

    # What is there.

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.clock.sleep(seconds)

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float, every: float = 1.0
    ) -> float | None:
        """Wait until it holds; the virtual seconds that took, or None."""
        begun = self.sim.clock.monotonic()
        while not await holds():
            if self.sim.clock.monotonic() - begun >= within:
                return None
            await self.sleep(every)
        return self.sim.clock.monotonic() - begun

    async def is_rolled_out(self) -> bool:
        """Whether the rollout of what is wanted now says that every node is done."""
        rollout = await self.rollout()
        if rollout is None or rollout.status.target != self.target:
            return False
        counts = rollout.status.counts
        return rollout.status.phase == "Complete" and counts.done == len(self.nodes)

    def revisions(self) -> tuple[Revision, ...]:
        """What the API server has written down."""
        return tuple(self.server.journal.revisions)

    async def entries(self) -> tuple[Entry, ...]:
        """What all agents have."""
        found = list(self._forgotten)
        for station in self.nodes.values():
            found += await station.entries()
        return tuple(found)

    async def events(self) -> tuple[Event, ...]:
        """What was said on the bus."""
        bus = self.bus.connect(Identity(writer=Writer.CTL))
        try:
            async with read_events(bus=bus, cluster="default", start=FromSequence()) as entries:
                return tuple([one.event async for one in entries if isinstance(one, RecordedEvent)])
        finally:
            bus.kill()

    async def end(self) -> None:
        """Everything stops where it stands."""
        for task in self._tasks:
            task.cancel()
        for role in self.roles:
            await role.kill()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # Who led lets go of the lease only when nothing of his can be carried out any more.
        await self.sleep(20)
        await self.server.stop()
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _cut(bus: Bus) -> None:
    assert isinstance(bus, LocalBus)
    bus.kill()


@asynccontextmanager
async def _connection(bus: LocalServer, identity: Identity) -> AsyncGenerator[LocalBus]:
    made = bus.connect(identity, permissions=permissions(identity))
    try:
        yield made
    finally:
        made.kill()


def run_world(
    story: Callable[[CampaignWorld], Coroutine[Any, Any, T]],
    *,
    seed: int,
    model: WorldModel,
    faults: BusFaults | None = None,
) -> T:
    """A story in a town of its own; what it started is stopped."""

    async def main(sim: Sim) -> T:
        with tempfile.TemporaryDirectory(prefix="sluice-town-", dir=_memory()) as folder:
            town = CampaignWorld(sim, Path(folder), model=model, faults=faults)
            async with town.cluster:
                try:
                    return await story(town)
                finally:
                    await town.end()

    # What is logged by whoever meets a fault is no part of the story.
    logging.disable(logging.CRITICAL)
    try:
        with capture_logs():
            return simulate(main, seed=seed)
    finally:
        logging.disable(logging.NOTSET)


def _memory() -> str | None:
    """A folder in memory, where there is one: several times as fast as one on a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
