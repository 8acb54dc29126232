"""Schedulers of a campaign, which command a node in turn or concurrently."""

import asyncio
from typing import Protocol

from libs.bus.port import BusError, StoredMessage
from libs.bus.slots import SlotOutranked, SlotWriter
from libs.contracts.commands import Command, CommandBody, Idle, Order, Quiesce, Swap
from libs.contracts.message import decode
from libs.contracts.reports import Report, Result
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim
from tests.unit.bus.command_world import NODE, SCHEDULER, SLOT


def next_order(token: int, *known: Order | None) -> Order:
    """Return the first order of this token after all known ones."""
    ops = (order.op for order in known if order is not None and order.token == token)
    return Order(token, 1 + max(ops, default=0))


class ResultObserver:
    """Keep each result that is newer than the last one of the same node uid."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Result]] = []
        self.last: dict[str, Order] = {}

    def began(self, recreated: bool, /) -> None: ...

    def received(self, message: StoredMessage) -> None:
        report = decode(Report, message.data)
        body = report.open()
        if isinstance(body, Result) and body.order > self.last.get(report.node_uid, Order(0, 0)):
            self.last[report.node_uid] = body.order
            self.taken.append((report.node_uid, body))

    def caught_up(self) -> None: ...

    def lost(self) -> None: ...


class CampaignView(Protocol):
    """The part of a campaign that leaders read."""

    sim: Sim
    server: LocalServer
    observer: ResultObserver
    uid: str
    boot: str
    quiet: bool
    last: Command | None

    def highest_order(self) -> Order:
        """Return the highest order that the agent has seen."""
        ...


class Leader:
    """A scheduler of one epoch; it may be deposed."""

    def __init__(self, run: CampaignView, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        self.bus = run.server.connect(SCHEDULER)
        self.slots = SlotWriter(bus=self.bus, clock=run.sim.clock)
        self.chance = run.sim.random_for(f"leader {epoch}")
        self.wanted: Command | None = None
        self.task = asyncio.create_task(self._lead(), name=f"leader {epoch}")

    async def kill(self) -> None:
        self.bus.kill()
        self.task.cancel()
        await asyncio.wait({self.task})

    async def _lead(self) -> None:
        while True:
            if self.run.quiet or self.wanted is None or self.chance.random() < 0.4:
                await self._decide()
            await self._write()
            await self.run.sim.clock.sleep(self.chance.uniform(0.5, 25.0))

    async def _decide(self) -> None:
        """Choose a new command; when the campaign is quiet, the last one for the current node."""
        wanted = self.wanted
        node = (self.run.uid, self.run.boot)
        if wanted and wanted == self.run.last and (wanted.node_uid, wanted.boot_id) == node:
            return
        try:
            slot = await self.slots.read(SLOT)
        except BusError:
            return
        current = slot.content if slot else None
        self.wanted = self._next_command(current)
        if self.run.quiet:
            self.run.last = self.wanted

    def _next_command(self, current: Command | None) -> Command:
        chance, run = self.chance, self.run
        own = self.wanted if self.wanted and self.wanted.node_uid == run.uid else None
        known = [run.observer.last.get(run.uid), own.order if own else None]
        if current is not None and current.node_uid == run.uid:
            known.append(current.order)
        known.append(run.highest_order())
        token = max((order.token for order in known if order), default=1)
        if run.quiet or chance.random() < 0.2:
            token += 1
        invalid = not run.quiet and chance.random() < 0.1
        return Command.of(
            self._body(),
            node=NODE,
            node_uid=chance.choice([run.uid, "uid-0"]) if invalid else run.uid,
            boot_id=chance.choice([run.boot, "boot-0"]) if invalid else run.boot,
            epoch=self.epoch,
            order=next_order(token, *known),
            deadline=run.sim.clock.now() + (chance.uniform(-20.0, 5.0) if invalid else 1e6),
        )

    def _body(self) -> CommandBody:
        if self.run.quiet:
            return Idle()
        return self.chance.choice([Quiesce(), Idle(), Swap(label="a"), Swap(label="b")])

    async def _write(self) -> None:
        if self.wanted is None:
            return
        try:
            answer = await self.slots.write(SLOT, self.wanted)
        except BusError:
            return  # the next write repeats it
        if isinstance(answer, SlotOutranked):
            self.wanted = None
