"""Publish and read events under faults, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from libs.bus import events
from libs.bus.events import EventPublisher, RecordedEvent, StoredEvent, read_events
from libs.bus.port import BusError
from libs.contracts.events import LeaderEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import EVENTS
from libs.testing.bus import BusFaults, LocalServer
from libs.testing.simulation import Sim, run
from tests.support import in_virtual_time

WRITER = Identity(writer=Writer.SCHEDULER)
READER = Identity(writer=Writer.CTL)


class World:
    """A server with EVENTS, a publisher and a reader."""

    def __init__(self, sim: Sim, faults: BusFaults | None = None) -> None:
        self.sim = sim
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.reader = self.server.connect(READER)
        self.dropped = 0
        self.publisher = EventPublisher(
            bus=self.server.connect(WRITER), env=sim.env("back-off"), on_dropped=self._drop
        )

    def _drop(self) -> None:
        self.dropped += 1

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        owner = self.server.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
        while True:
            try:
                await owner.ensure(EVENTS)
                break
            except BusError:
                await self.sim.clock.sleep(1.0)
        task = asyncio.ensure_future(self.publisher.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def publish(self, *epochs: int, holder: str = "one") -> None:
        for epoch in epochs:
            body = LeaderEvent(holder=holder, epoch=epoch)
            self.publisher.publish(body, id=f"epoch-{epoch}", message=f"epoch {epoch} began")

    async def epochs(self) -> list[int]:
        async with read_events(bus=self.reader, cluster="default") as stored:
            return [epoch_of(event) async for event in stored]


def epoch_of(stored: StoredEvent) -> int:
    assert isinstance(stored, RecordedEvent)
    body = stored.event.open()
    assert isinstance(body, LeaderEvent)
    return body.epoch


@pytest.mark.parametrize("seed", range(10))
def test_every_event_is_stored_in_order_despite_faults(seed: int) -> None:
    faults = BusFaults(
        call_lost=0.2,
        answer_lost=0.2,
        delayed=0.2,
        delay=(0.0, 2.0),
        between_drops=(5.0, 40.0),
        dropped=(0.5, 20.0),
    )

    async def story(sim: Sim) -> None:
        world = World(sim, faults)
        async with world.publishing():
            for epoch in range(60):
                world.publish(epoch)
                await sim.clock.sleep(sim.random.uniform(0.0, 3.0))
            await sim.clock.sleep(600.0)
        # An event is repeated after a lost answer; the server drops repeats for two minutes only.
        assert list(dict.fromkeys(await world.epochs())) == list(range(60))
        assert world.dropped == 0

    run(story, seed=seed)


def test_the_oldest_events_are_dropped_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 3)

    async def story(sim: Sim) -> None:
        world = World(sim)
        async with world.publishing():
            world.server.stop()
            world.publish(*range(5))
            await sim.clock.sleep(3_600.0)
            assert world.dropped == 2
            world.server.start()
            await sim.clock.sleep(15.0)
            assert await world.epochs() == [2, 3, 4]

    run(story, seed=7)


@in_virtual_time
async def test_an_event_that_the_bus_refuses_does_not_hold_up_the_next(sim: Sim) -> None:
    world = World(sim)
    async with world.publishing():
        world.publish(1, holder="x" * 70_000)
        world.publish(2)
        await sim.clock.sleep(1.0)
        assert await world.epochs() == [2]
        assert world.dropped == 1


def test_a_slow_reader_gets_every_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_BUFFERED", 10)

    async def story(sim: Sim) -> None:
        delivered: list[int] = []
        world = World(sim)
        world.server.add_tracer(
            lambda record: delivered.append(record.sequence) if record.action == "read" else None
        )
        async with world.publishing():
            world.publish(*range(100))
            await sim.clock.sleep(1.0)
            async with read_events(bus=world.reader, cluster="default") as stored:
                count = 0
                async for event in stored:
                    assert epoch_of(event) == count
                    count += 1
                    if count == 50:
                        world.publish(*range(100, 300))
                        await sim.clock.sleep(1.0)
        assert count == 300
        assert delivered == list(range(1, 301))

    run(story, seed=7)


@in_virtual_time
async def test_a_reader_that_waits_can_be_cancelled_and_used_again(sim: Sim) -> None:
    world = World(sim)
    async with (
        world.publishing(),
        read_events(bus=world.reader, cluster="default", follow=True) as stored,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await anext(stored)
        world.publish(1)
        assert epoch_of(await anext(stored)) == 1
