"""One agent on one machine with an in-process bus and a scheduler that sends commands."""

import random as randomness
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Check, CheckBody, Command, CommandBody, Order
from libs.contracts.events import Event
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry
from libs.contracts.message import decode, encode
from libs.contracts.reports import Progress, Report, Result, StateBody
from libs.contracts.subjects import COMMANDS, STREAMS
from libs.host.gpus.port import Gpus
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from libs.runtime.service import Service
from libs.testing.bus import LocalServer
from libs.testing.bus.local_bus import LocalBus
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.simulation import Sim, run
from tests.unit.fake_machine import BOOT, FakeMachine

NODE = "a.example"
UID = "uid-1"


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of an agent is started with."""

    bus: LocalBus
    host: Machine
    journal: MemoryJournal
    clock: Clock
    random: randomness.Random
    service: Service


StartAgent = Callable[[AgentContext], Coroutine[Any, Any, None]]


class AgentWorld:
    def __init__(self, sim: Sim, root: Path, writer: Writer, start: StartAgent) -> None:
        self.sim = sim
        self.writer = writer
        self._start = start
        self.clock = sim.clock
        self.fake_machine = FakeMachine(root)
        self.server = LocalServer(env=sim.env("bus"))
        self.scheduler = self.server.connect(Identity(writer=Writer.SCHEDULER))
        self.slots = SlotWriter(bus=self.scheduler, clock=sim.clock)
        self.entries = list[Entry]()
        self.reports = list[StateBody]()
        self.events = list[Event]()
        self.ops = 0
        self._starts = 0
        self.server.add_tracer(self._observe)

    def _observe(self, record: Any) -> None:
        subject = subjects.parse(record.subject) if record.what == "store" else None
        if isinstance(subject, subjects.State):
            self.reports.append(decode(Report, record.data).open())
        if isinstance(subject, subjects.Event):
            self.events.append(decode(Event, record.data))

    @asynccontextmanager
    async def agent(self) -> AsyncGenerator[Service]:
        """Run one process of the agent while entered; it ends as if killed."""
        self._starts += 1
        bus = self.server.connect(Identity(writer=self.writer, node=NODE))
        journal = MemoryJournal(self.entries, pause=lambda: self.clock.sleep(0.001))
        service = Service(self.writer, clock=self.clock)
        context = AgentContext(
            bus=bus,
            host=self.fake_machine.machine,
            journal=journal,
            clock=self.clock,
            random=self.sim.random_for(f"agent {self._starts}"),
            service=service,
        )

        async def run_agent() -> None:
            async with service:
                await self._start(context)

        task = self.sim.loop.create_task(run_agent())
        try:
            yield service
        finally:
            bus.kill()
            journal.kill()
            service.stop("killed")
            await task

    async def send_command(
        self, body: CommandBody, *, deadline: float = 120.0, boot: str = BOOT
    ) -> Order:
        self.ops += 1
        order = Order(1, self.ops)
        command = Command.of(
            body,
            node=NODE,
            node_uid=UID,
            boot_id=boot,
            epoch=1,
            order=order,
            deadline=self.clock.now() + deadline,
        )
        slot = subjects.Command(cluster="default", node=NODE, component=self.writer)
        await self.slots.write(slot, command)
        return order

    async def send_check(self, body: CheckBody) -> None:
        """Send a check to the agent."""
        check = Check.of(
            body, id="c-1", node=NODE, node_uid=UID, boot_id=BOOT, now=self.clock.now()
        )
        slot = subjects.Check(
            cluster="default", node=NODE, component=self.writer, asker=Writer.SCHEDULER
        )
        await self.scheduler.store(COMMANDS, str(slot), encode(check))

    def result(self, order: Order) -> Result | None:
        """Return the result of an operation, if it has ended."""
        results = [
            report
            for report in self.reports
            if isinstance(report, Result) and report.order == order
        ]
        assert len({report.outcome for report in results}) <= 1
        return results[-1] if results else None

    def phases(self, order: Order) -> list[str]:
        """Return the reported phases of an operation, each once."""
        found = [
            report.phase
            for report in self.reports
            if isinstance(report, Progress) and report.order == order
        ]
        return list(dict.fromkeys(found))

    async def until(self, holds: Callable[[], object], *, within: float = 600.0) -> None:
        """Wait in virtual time."""
        end = self.clock.monotonic() + within
        while not holds():
            assert self.clock.monotonic() < end, f"not within {within:g} s; reports: {self.reports}"
            await self.clock.sleep(0.25)


Story = Callable[[AgentWorld], Coroutine[Any, Any, None]]


def play(story: Story, *, writer: Writer, start: StartAgent) -> None:
    """Run a story of this component in virtual time."""

    async def main(sim: Sim) -> None:
        with tempfile.TemporaryDirectory(prefix="sluice-machine-") as folder:
            world = AgentWorld(sim, Path(folder), writer, start)
            for stream in STREAMS:
                await world.scheduler.ensure(stream)
            await story(world)
            world.scheduler.kill()

    run(main, seed=0)


def with_gpus(machine: Machine, gpus: Gpus) -> Machine:
    """Return the machine with other GPUs."""
    return msgspec.structs.replace(machine, gpus=gpus)
