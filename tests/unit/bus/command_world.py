"""A node's driver agent, its slot and its reports on the in-process bus."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from libs.bus.commands.checks import CheckHandler
from libs.bus.commands.executor import CommandHandler, Op, OpDone
from libs.bus.commands.receiver import CommandReceiver
from libs.bus.journal import Journal
from libs.bus.port import BusError
from libs.bus.reporter import Reporter
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import (
    Check,
    CheckKind,
    Command,
    CommandBody,
    CommandKind,
    Idle,
    Order,
    Quiesce,
    Swap,
)
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry
from libs.contracts.message import decode, encode
from libs.contracts.reports import Refusal, Report, Result, StateBody
from libs.contracts.subjects import COMMANDS, STREAMS
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal
from libs.runtime.tasks import Tasks
from libs.testing.bus import BusFaults, LocalServer, TraceRecord
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.simulation import Sim, make_env
from tests.unit.bus.simulated import in_simulation

NODE = "a.example"
UID = "uid-1"
BOOT = "boot-1"
AGENT = Identity(writer=Writer.DRIVER, node=NODE)
SCHEDULER = Identity(writer=Writer.SCHEDULER)
SLOT = subjects.Command(cluster="default", node=NODE, component=Writer.DRIVER)


class AgentProcess:
    """One process of the agent."""

    def __init__(
        self,
        sim: Sim,
        server: LocalServer,
        journal: Journal,
        *,
        chance: random.Random,
        failed: Callable[[Fatal], None],
        handlers: Mapping[CommandKind, CommandHandler],
        checks: Mapping[CheckKind, CheckHandler],
        uid: str = UID,
        boot: str = BOOT,
    ) -> None:
        self.uid = uid
        self.boot = boot
        self.bus = server.connect(AGENT)
        self.journal = journal
        self.reporter = Reporter(
            bus=self.bus, env=make_env(clock=sim.clock, random=chance), node_uid=uid, boot_id=boot
        )
        self.receiver = CommandReceiver(
            bus=self.bus,
            env=make_env(clock=sim.clock, random=chance),
            journal=journal,
            reporter=self.reporter,
            node_uid=uid,
            boot_id=boot,
            handlers=handlers,
            checks=checks,
        )
        self.tasks = Tasks("agent", failed=failed)

    def start(self) -> None:
        self.tasks.forever("reporter", self.reporter.run())
        self.tasks.forever("receiver", self.receiver.run())

    def cut(self) -> None:
        """Cut the process off from the bus and its journal."""
        self.bus.kill()
        if isinstance(self.journal, MemoryJournal):
            self.journal.kill()

    async def kill(self) -> None:
        self.cut()
        await self.tasks.close()


def command(
    op: int,
    body: CommandBody | None = None,
    *,
    epoch: int = 1,
    token: int = 1,
    uid: str = UID,
    boot: str = BOOT,
    deadline: float = 4e9,
) -> Command:
    """Return a command for the agent, by default `quiesce`."""
    return Command.of(
        body or Quiesce(),
        node=NODE,
        node_uid=uid,
        boot_id=boot,
        epoch=epoch,
        order=Order(token, op),
        deadline=deadline,
    )


class World:
    """A server with streams, a writer, agents that share a journal, and the stored reports."""

    def __init__(self, sim: Sim, faults: BusFaults | None = None) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.writer = self.server.connect(SCHEDULER)
        self.slots = SlotWriter(bus=self.writer, clock=sim.clock)
        self.entries = list[Entry]()
        self.reports: list[Report] = []
        self.raw: list[bytes] = []
        self.stored_under: list[str] = []
        self.agents: list[AgentProcess] = []
        self.failures: list[Fatal] = []
        self.ops: list[Op] = []
        self.server.add_tracer(self._on_trace)

    def _on_trace(self, record: TraceRecord) -> None:
        if record.action == "store" and isinstance(subjects.parse(record.subject), subjects.State):
            self.raw.append(record.data)
            self.stored_under.append(record.subject)
            self.reports.append(decode(Report, record.data))

    async def done(self, op: Op) -> OpDone:
        """Complete the operation at once."""
        self.ops.append(op)
        return OpDone()

    async def unload(self, op: Op) -> OpDone:
        """Pass a checkpoint after twenty seconds, then complete the operation."""
        await self.clock.sleep(20.0)
        await op.checkpoint("unload")
        return await self.done(op)

    async def stuck(self, op: Op) -> OpDone:
        """Pass a checkpoint, then never complete the operation."""
        await op.checkpoint("unload")
        await asyncio.Event().wait()
        return OpDone()

    def agent(
        self,
        handlers: Mapping[CommandKind, CommandHandler] | None = None,
        *,
        checks: Mapping[CheckKind, CheckHandler] | None = None,
        journal: Journal | None = None,
        uid: str = UID,
        boot: str = BOOT,
    ) -> AgentProcess:
        """Start a new process."""
        agent = AgentProcess(
            self.sim,
            self.server,
            journal or MemoryJournal(self.entries, pause=lambda: self.clock.sleep(0.001)),
            chance=self.sim.random_for(f"agent {len(self.agents)}"),
            failed=self.failures.append,
            handlers=dict.fromkeys((CommandKind.QUIESCE, CommandKind.IDLE), self.done)
            if handlers is None
            else handlers,
            checks=checks or {},
            uid=uid,
            boot=boot,
        )
        self.agents.append(agent)
        agent.start()
        return agent

    def bodies(self) -> list[StateBody]:
        """Return the bodies of all reports, in the order of STATE."""
        return [report.open() for report in self.reports]

    def results(self) -> list[Result]:
        return [body for body in self.bodies() if isinstance(body, Result)]

    def refusals(self) -> list[Refusal]:
        return [body for body in self.bodies() if isinstance(body, Refusal)]

    async def put(self, content: Command | Check | bytes, *, slot: subjects.Slot = SLOT) -> None:
        """Write a slot without reading it."""
        data = content if isinstance(content, bytes) else encode(content)
        await self.writer.store(COMMANDS, str(slot), data)

    async def execute(self, content: Command) -> None:
        """Write a command, and wait for its result."""
        count = len(self.results())
        await self.slots.write(SLOT, content)
        await self.until(lambda: len(self.results()) > count)

    async def refusal_of(
        self, content: Command | Check | bytes, *, slot: subjects.Slot = SLOT
    ) -> Refusal:
        """Write a slot, and return the refusal of its content."""
        count = len(self.refusals())
        await self.put(content, slot=slot)
        await self.until(lambda: len(self.refusals()) > count)
        return self.refusals()[-1]

    async def until(self, holds: Callable[[], bool], *, within: float = 300.0) -> None:
        """Wait in virtual time until the condition holds."""
        end = self.clock.monotonic() + within
        while not holds():
            assert self.clock.monotonic() < end, f"not within {within:g} virtual seconds"
            await self.clock.sleep(0.05)


def every_kind(handler: CommandHandler) -> dict[CommandKind, CommandHandler]:
    return dict.fromkeys((CommandKind.QUIESCE, CommandKind.SWAP, CommandKind.IDLE), handler)


IDLE = Idle()
SWAP = Swap(label="blue")


async def persist(clock: Clock, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Repeat a call until the bus answers."""
    while True:
        try:
            await act()
        except BusError:
            await clock.sleep(1.0)
        else:
            return


@asynccontextmanager
async def world_of(sim: Sim, faults: BusFaults | None = None) -> AsyncGenerator[World]:
    """Yield a world; its agents are killed at the end, and none may have failed."""
    world = World(sim, faults)
    for stream in STREAMS:
        await persist(world.clock, partial(world.writer.ensure, stream))
    try:
        yield world
    finally:
        for agent in world.agents:
            await agent.kill()
        world.writer.kill()
    assert world.failures == []


in_world = in_simulation(world_of, seed=0)
