"""The driver agent of one machine on an in-process bus, and who gives it commands."""

import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sluice.bus.journal import MemoryJournal
from sluice.bus.local import LocalServer
from sluice.bus.slots import Slots
from sluice.contracts import subjects
from sluice.contracts.commands import Check, CheckBody, Command, CommandBody, Order
from sluice.contracts.identities import Identity, Writer
from sluice.contracts.journal import Entry
from sluice.contracts.message import decode, encode
from sluice.contracts.reports import Progress, Report, Result, StateBody
from sluice.contracts.streams import COMMANDS, STREAMS
from sluice.driver.node import agent
from sluice.driver.node.settings import DriverAgentSettings
from sluice.runtime.service import Service
from sluice.sim.loop import Sim, run
from tests.unit.driver.node.machines import BOOT, Box

NODE = "a.example"
UID = "uid-1"
SLOT = subjects.Command(cluster="default", node=NODE, component=Writer.DRIVER)
CHECK = subjects.Check(
    cluster="default", node=NODE, component=Writer.DRIVER, asker=Writer.SCHEDULER
)


class Ground:
    """Machine, bus and scheduler; agents come and go."""

    def __init__(self, sim: Sim, root: Path) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.box = Box(root)
        self.server = LocalServer(clock=sim.clock, random=sim.random_for("bus"))
        self.scheduler = self.server.connect(Identity(writer=Writer.SCHEDULER))
        self.slots = Slots(bus=self.scheduler, clock=sim.clock)
        self.kept = list[Entry]()
        self.said = list[StateBody]()
        self.ops = 0
        self._starts = 0
        self.server.tap(self._heard)

    def _heard(self, it: Any) -> None:
        if it.what == "store" and isinstance(subjects.parse(it.subject), subjects.State):
            self.said.append(decode(Report, it.data).open())

    @asynccontextmanager
    async def agent(self) -> AsyncGenerator[Service]:
        """One process of the agent, while this is entered; it ends as if it were killed."""
        self._starts += 1
        bus = self.server.connect(Identity(writer=Writer.DRIVER, node=NODE))
        journal = MemoryJournal(self.kept, pause=lambda: self.clock.sleep(0.001))
        service = Service("driver", clock=self.clock)
        settings = DriverAgentSettings(node=NODE, node_uid=UID, pod_uid="", namespace="")

        async def live() -> None:
            async with service:
                await agent.run(
                    settings,
                    bus=bus,
                    host=self.box.machine,
                    journal=journal,
                    clock=self.clock,
                    random=self.sim.random_for(f"agent {self._starts}"),
                    service=service,
                )

        task = self.sim.loop.create_task(live())
        try:
            yield service
        finally:
            bus.kill()
            journal.kill()
            service.stop("killed")
            await task

    async def order(self, body: CommandBody, *, deadline: float = 120.0, boot: str = BOOT) -> Order:
        """Put a command into the slot."""
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
        await self.slots.write(SLOT, command)
        return order

    async def ask(self, body: CheckBody) -> None:
        """Put a check to the agent."""
        check = Check.of(
            body, id="c-1", node=NODE, node_uid=UID, boot_id=BOOT, now=self.clock.now()
        )
        await self.scheduler.store(COMMANDS, str(CHECK), encode(check))

    def result(self, order: Order) -> Result | None:
        """How an op ended, if it did."""
        results = [one for one in self.said if isinstance(one, Result) and one.order == order]
        assert len({one.outcome for one in results}) <= 1
        return results[-1] if results else None

    def phases(self, order: Order) -> list[str]:
        """What was said of an op on the way, each phase once."""
        said = [one.phase for one in self.said if isinstance(one, Progress) and one.order == order]
        return list(dict.fromkeys(said))

    async def until(self, holds: Callable[[], object], *, within: float = 600.0) -> None:
        """Wait in virtual time."""
        end = self.clock.monotonic() + within
        while not holds():
            assert self.clock.monotonic() < end, f"not so within {within:g} s; said: {self.said}"
            await self.clock.sleep(0.25)


Story = Callable[[Ground], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    """A story in virtual time."""

    async def main(sim: Sim) -> None:
        with tempfile.TemporaryDirectory(prefix="sluice-machine-") as folder:
            ground = Ground(sim, Path(folder))
            for stream in STREAMS:
                await ground.scheduler.ensure(stream)
            await story(ground)
            ground.scheduler.kill()

    run(main, seed=0)
