"""The whole system in virtual time: services, simulated cluster, bus and machines."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from structlog.testing import capture_logs

from demo.node import SimulatedNode
from demo.verdict import events_of
from libs.audit import LostJournal
from libs.bus.permissions import permissions
from libs.bus.port import Bus
from libs.contracts.events import Event
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry, Revision
from libs.kube.client import Kube
from libs.policy.crds import CEL_RULES
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import BusFaults, LocalServer, TraceRecord
from libs.testing.bus.local_bus import LocalBus
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.simulation import Sim, SteppedClock
from libs.testing.simulation import run as simulate
from libs.testing.stage.worlds import MachineModel
from tests.component.campaign.admin import CampaignAdmin
from tests.component.campaign.delayed_offload import DelayedOffload
from tests.component.campaign.roles import ROLES, RoleProcess

T = TypeVar("T")

RESTARTS = 5.0
"""Seconds until an ended cluster role is restarted, as by its Deployment."""


class CampaignWorld(CampaignAdmin):
    def __init__(
        self, sim: Sim, root: Path, *, model: MachineModel, faults: BusFaults | None = None
    ) -> None:
        self.sim = sim
        self.root = root
        self.model = model
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), rules=CEL_RULES
        )
        self.bus = LocalServer(env=sim.env("bus"), faults=faults)
        super().__init__(self._kube_for("person", "kubectl"), self.server.transport(user="person"))
        self.cluster = SimulatedCluster(self._kube_for, model=model, env=sim.env("cluster"))
        self.nodes: dict[str, SimulatedNode] = {}
        self.clocks: dict[str, SteppedClock] = {}
        """The clocks of the machines, by which kubelets and agents go."""
        self.most_wrong = dict[str, float]()
        """Seconds by which the clock of a machine was wrong at most."""
        self.offloads: dict[str, DelayedOffload] = {}
        """The blocking calls of the agents of each machine."""
        self.roles: list[RoleProcess] = []
        self.failures: list[str] = []
        """Cluster roles that ended by themselves, with the reason."""
        self._lost_entries: list[Entry] = []
        self.lost_journals: list[LostJournal] = []
        self._listeners: list[Callable[[TraceRecord], None]] = []
        self.bus.add_tracer(self._notify)
        self._tasks: list[asyncio.Task[Any]] = []
        self._current_roles: dict[Writer, RoleProcess] = {}
        self._faults_over = asyncio.Event()

    def _kube_for(self, user: str, manager: str) -> Kube:
        return Kube(self.server.transport(user=user), manager=manager, clock=self.sim.clock)

    def add_machine(self, name: str) -> None:
        """Add a machine, switched on; its kubelet joins the cluster."""
        sim = self.sim
        machine = SimulatedMachine(
            self.root / name, name=name, model=self.model, env=sim.env(name), cache_reads=True
        )
        offload = self.offloads[name] = DelayedOffload(sim.clock)
        clock = self.clocks[name] = SteppedClock(sim.clock)
        sim_node = self.nodes[name] = SimulatedNode(
            machine,
            kube_for=self._kube_for,
            connect=self._join,
            cut=_cut,
            model=self.model,
            access=offload,
            env=msgspec.structs.replace(sim.env(), clock=clock),
            random_for=sim.random_for,
        )
        self._tasks.append(asyncio.create_task(sim_node.run(), name=f"machine {name}"))

    async def _join(self, service: Service, identity: Identity, _pod: Pod) -> Bus:
        return await service.enter("bus", _connection(self.bus, identity))

    def start(self, writer: Writer) -> RoleProcess:
        """Start another process of the role."""
        role = RoleProcess(
            self.sim,
            server=self.server,
            bus=self.bus,
            writer=writer,
            number=len(self.roles) + 1,
        )
        self.roles.append(role)
        return role

    def keep_running(self, *writers: Writer) -> None:
        """Run one process of each role, and restart it whenever it ends."""
        for writer in writers or ROLES:
            self._tasks.append(asyncio.create_task(self._keep_role(writer), name=f"keeps {writer}"))

    async def _keep_role(self, writer: Writer) -> None:
        while True:
            role = self._current_roles[writer] = self.start(writer)
            await asyncio.wait({role.task})
            # Without the bus a role cannot start; its Deployment retries.
            if role.failure and "Away: " not in role.failure:
                self.failures.append(f"{role.name}: {role.failure}")
            await self.sleep(RESTARTS)

    def process_of(self, writer: Writer) -> RoleProcess:
        """Return the current or last process of the role."""
        return self._current_roles[writer]

    def run_in_background(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine until it is done or the story ends."""
        self._tasks.append(asyncio.create_task(coroutine, name="later"))

    def run_after(self, seconds: float, do: Callable[[], object]) -> None:
        """Call `do` after a delay or when all faults end; await a coroutine that it returns."""
        task = asyncio.create_task(self._after(seconds, do), name="after")
        self._tasks.append(task)

    async def _after(self, seconds: float, do: Callable[[], object]) -> None:
        faults_over = asyncio.create_task(self._faults_over.wait(), name="over")
        try:
            await asyncio.wait({faults_over}, timeout=seconds)
        finally:
            faults_over.cancel()
        result = do()
        if isinstance(result, Coroutine):
            await result

    @property
    def faults_are_over(self) -> bool:
        return self._faults_over.is_set()

    async def end_faults(self) -> None:
        """End all faults now, and run all delayed calls."""
        self.server.faults.clear()
        self.bus.stop_faults()
        self.bus.start()
        self._faults_over.set()
        await self.sleep(1)

    def add_bus_listener(self, listener: Callable[[TraceRecord], None]) -> None:
        """Call the listener for everything that happens on the bus."""
        self._listeners.append(listener)

    def _notify(self, record: TraceRecord) -> None:
        for listener in tuple(self._listeners):
            listener(record)

    def set_clock(self, node: str, by: float) -> None:
        """Set the clock of a machine; its kernel, kubelet and agents go by it."""
        clock = self.clocks[node]
        clock.ahead += by
        self.nodes[node].machine.set_clock(round(clock.ahead))
        self.most_wrong[node] = max(self.most_wrong.get(node, 0.0), abs(clock.ahead))

    def record_lost_entries(self, entries: Iterable[Entry]) -> None:
        """Keep journal entries that an agent has lost."""
        lost, now = list(entries), self.sim.clock.now()
        self._lost_entries += lost
        self.lost_journals += [
            LostJournal(node_uid=node_uid, component=component, time=now)
            for node_uid, component in sorted({(entry.node_uid, entry.component) for entry in lost})
        ]

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float, every: float = 1.0
    ) -> bool:
        """Wait until the condition holds; return whether it did in time."""
        started = self.sim.clock.monotonic()
        while not await holds():
            if self.sim.clock.monotonic() - started >= within:
                return False
            await self.sleep(every)
        return True

    async def is_rolled_out(self) -> bool:
        """Return whether the rollout of the current target reports every node as done."""
        rollout = await self.rollout()
        if rollout is None or rollout.status.target != self.target:
            return False
        counts = rollout.status.counts
        return rollout.status.phase == "Complete" and counts.done == len(self.nodes)

    def revisions(self) -> tuple[Revision, ...]:
        return tuple(self.server.journal.revisions)

    async def entries(self) -> tuple[Entry, ...]:
        entries = list(self._lost_entries)
        for sim_node in self.nodes.values():
            entries += await sim_node.entries()
        return tuple(entries)

    async def events(self) -> tuple[Event, ...]:
        bus = self.bus.connect(Identity(writer=Writer.CTL))
        try:
            return await events_of(bus)
        finally:
            bus.kill()

    async def end(self) -> None:
        """Stop everything at once."""
        for task in self._tasks:
            task.cancel()
        for role in self.roles:
            await role.kill()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # A leader releases the lease only when none of its writes can take effect any more.
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
    connection = bus.connect(identity, permissions=permissions(identity))
    try:
        yield connection
    finally:
        connection.kill()


def run_world(
    story: Callable[[CampaignWorld], Coroutine[Any, Any, T]],
    *,
    seed: int,
    model: MachineModel,
    faults: BusFaults | None = None,
) -> T:
    """Run a story in a world of its own, and stop everything at its end."""

    async def main(sim: Sim) -> T:
        with tempfile.TemporaryDirectory(prefix="sluice-campaign-", dir=_memory()) as folder:
            world = CampaignWorld(sim, Path(folder), model=model, faults=faults)
            async with world.cluster:
                try:
                    return await story(world)
                finally:
                    await world.end()

    # Logs of the injected faults would only distract.
    logging.disable(logging.CRITICAL)
    try:
        with capture_logs():
            return simulate(main, seed=seed)
    finally:
        logging.disable(logging.NOTSET)


def _memory() -> str | None:
    """Return a folder in memory if there is one: several times as fast as a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
