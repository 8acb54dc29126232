"""One agent on one machine with an in-process bus and a scheduler that sends commands."""

import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

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
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.bus import LocalServer
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.simulation import Sim, run
from services.agent_frame import Given
from tests.builders.fake_machine import BOOT, FakeDriver, FakeMachine
from tests.support import played_by

B = TypeVar("B", bound=StateBody)
W = TypeVar("W", bound="AgentWorld")

Story = Callable[[W], Coroutine[Any, Any, None]]

NODE = "a.example"
UID = "uid-1"


class AgentWorld:
    """A world for the tests of one agent, which a subclass names."""

    WRITER: ClassVar[Writer]

    def __init__(self, sim: Sim, root: Path) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.machine = FakeMachine(root)
        self.driver = FakeDriver()
        self.server = LocalServer(env=sim.env("bus"))
        self.scheduler = self.server.connect(Identity(writer=Writer.SCHEDULER))
        self.slots = SlotWriter(bus=self.scheduler, clock=sim.clock)
        self.entries = list[Entry]()
        self.reports = list[StateBody]()
        self.events = list[Event]()
        self.metrics = Metrics(version="0")
        """The metrics of the agent's current process."""
        self._ops = 0
        self._starts = 0
        self.server.add_tracer(self._observe)

    async def run_agent(self, given: Given) -> None:
        """Call the agent's `run`."""
        raise NotImplementedError

    def _observe(self, record: Any) -> None:
        subject = subjects.parse(record.subject) if record.action == "store" else None
        if isinstance(subject, subjects.State):
            self.reports.append(decode(Report, record.data).open())
        if isinstance(subject, subjects.Event):
            self.events.append(decode(Event, record.data))

    @asynccontextmanager
    async def agent(self) -> AsyncGenerator[Service]:
        """Run one process of the agent while entered; it ends as if killed."""
        self._starts += 1
        self.metrics = Metrics(version="0")
        bus = self.server.connect(Identity(writer=self.WRITER, node=NODE))
        journal = MemoryJournal(self.entries, pause=lambda: self.clock.sleep(0.001))
        service = Service(self.WRITER, clock=self.clock)
        host = msgspec.structs.replace(self.machine.machine, gpus=self.driver.gpus)
        env = self.sim.env(f"agent {self._starts}", metrics=self.metrics)

        async def run_agent() -> None:
            async with service:
                await self.run_agent(
                    Given(bus=bus, host=host, journal=journal, env=env, service=service)
                )

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
        self._ops += 1
        order = Order(1, self._ops)
        command = Command.of(
            body,
            node=NODE,
            node_uid=UID,
            boot_id=boot,
            epoch=1,
            order=order,
            deadline=self.clock.now() + deadline,
        )
        slot = subjects.Command(cluster="default", node=NODE, component=self.WRITER)
        await self.slots.write(slot, command)
        return order

    async def send_check(self, body: CheckBody, *, name: str = "c-1") -> None:
        """Send a check to the agent."""
        check = Check.of(body, id=name, node=NODE, node_uid=UID, boot_id=BOOT, now=self.clock.now())
        slot = subjects.Check(
            cluster="default", node=NODE, component=self.WRITER, asker=Writer.SCHEDULER
        )
        await self.scheduler.store(COMMANDS, str(slot), encode(check))

    def result(self, order: Order) -> Result | None:
        """Return the result of an operation, if it has ended."""
        results = [report for report in self.reported(Result) if report.order == order]
        assert len({report.outcome for report in results}) <= 1
        return results[-1] if results else None

    async def carry_out(self, body: CommandBody, *, deadline: float = 120.0) -> Result:
        """Send a command, and wait for its result."""
        return await self.wait_for_result(await self.send_command(body, deadline=deadline))

    async def wait_for_result(self, order: Order) -> Result:
        await self.until(lambda: self.result(order))
        result = self.result(order)
        assert result is not None
        return result

    def reported(self, kind: type[B]) -> list[B]:
        """Return the reports of a kind, the oldest first."""
        return [body for body in self.reports if isinstance(body, kind)]

    def phases(self, order: Order) -> list[str]:
        """Return the reported phases of an operation, each once."""
        phases = [report.phase for report in self.reported(Progress) if report.order == order]
        return list(dict.fromkeys(phases))

    async def until(self, holds: Callable[[], object], *, within: float = 600.0) -> None:
        """Wait in virtual time until the condition holds."""
        end = self.clock.monotonic() + within
        while not holds():
            assert self.clock.monotonic() < end, f"not within {within:g} s; reports: {self.reports}"
            await self.clock.sleep(0.25)


def in_world_of(
    make: Callable[[Sim, Path], AgentWorld],
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that turns an async function of such a world into a test."""
    return played_by(lambda story: play(story, make))


def play(story: Story[W], make: Callable[[Sim, Path], W]) -> None:
    """Run a story in virtual time, with an agent world of its own."""

    async def main(sim: Sim) -> None:
        with tempfile.TemporaryDirectory(prefix="sluice-machine-") as folder:
            world = make(sim, Path(folder))
            for stream in STREAMS:
                await world.scheduler.ensure(stream)
            await story(world)
            world.scheduler.kill()

    run(main, seed=0)
