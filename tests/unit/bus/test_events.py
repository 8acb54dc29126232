"""Events under every trouble, in virtual time: what its publisher was told of is there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from libs.bus import events
from libs.bus.events import Chronicle, ChronicleFull, RecordedEvent, read_events
from libs.bus.port import BusError, FromSequence
from libs.contracts.events import LeaderEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.streams import EVENTS
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim, run

WRITER = Identity(writer=Writer.SCHEDULER)
READER = Identity(writer=Writer.CTL)


class World:
    """A server with EVENTS, a writer and a reader."""

    def __init__(self, sim: Sim, faults: BusFaults | None = None, *, waiting: int = 1_000) -> None:
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.owner: LocalBus = self.server.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
        self.reader: LocalBus = self.server.connect(READER)
        self.chronicle = Chronicle(
            bus=self.server.connect(WRITER),
            env=sim.env("back-off"),
            waiting=waiting,
        )

    def publish(self, epoch: int) -> Coroutine[Any, Any, None]:
        return self.chronicle.publish(
            LeaderEvent(holder="one", epoch=epoch), message=f"epoch {epoch} began"
        )

    async def epochs(self) -> list[int]:
        """Those that are recorded, in order."""
        return [epoch_of(entry) async for entry in self.entries()]

    async def entries(self) -> AsyncIterator[RecordedEvent]:
        async with read_events(bus=self.reader, cluster="default", start=FromSequence()) as entries:
            async for entry in entries:
                assert isinstance(entry, RecordedEvent)
                yield entry


def epoch_of(entry: events.StoredEvent) -> int:
    assert isinstance(entry, RecordedEvent)
    body = entry.event.open()
    assert isinstance(body, LeaderEvent)
    return body.epoch


def in_virtual_time(story: Callable[[Sim], Coroutine[Any, Any, None]], *, seed: int = 7) -> None:
    run(story, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_what_was_acknowledged_is_there_under_one_id_whatever_happens(seed: int) -> None:
    troubles = BusFaults(
        call_lost=0.2,
        answer_lost=0.2,
        delayed=0.2,
        delay=(0.0, 2.0),
        between_drops=(5.0, 40.0),
        dropped=(0.5, 20.0),
    )

    async def story(sim: Sim) -> None:
        w = World(sim, troubles)
        while True:
            try:
                await w.owner.ensure(EVENTS)
                break
            except BusError:
                await sim.clock.sleep(1.0)
        async with asyncio.TaskGroup() as group:
            for epoch in range(60):
                group.create_task(w.publish(epoch))
                await sim.clock.sleep(sim.random.uniform(0.0, 3.0))
        assert w.chronicle.waiting == 0
        entries = [entry async for entry in w.entries()]
        by_id = {entry.event.id: epoch_of(entry) for entry in entries}
        assert sorted(by_id.values()) == list(range(60))

    in_virtual_time(story, seed=seed)


def test_an_event_waits_while_the_bus_is_away_and_its_publisher_with_it() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim)
        await w.owner.ensure(EVENTS)
        w.server.stop()
        publishing = asyncio.ensure_future(w.publish(1))
        await sim.clock.sleep(3_600.0)
        assert not publishing.done()
        assert w.chronicle.waiting == 1
        w.server.start()
        back = sim.clock.monotonic()
        await publishing
        assert sim.clock.monotonic() - back <= events.RETRY_CAP
        assert await w.epochs() == [1]

    in_virtual_time(story)


def test_too_many_waiting_is_said_at_once_and_the_others_are_kept() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim, waiting=3)
        await w.owner.ensure(EVENTS)
        w.server.stop()
        async with asyncio.TaskGroup() as group:
            for epoch in range(3):
                group.create_task(w.publish(epoch))
            await sim.clock.sleep(0.0)
            began = sim.clock.monotonic()
            with pytest.raises(ChronicleFull) as caught:
                await w.publish(3)
            assert sim.clock.monotonic() == began
            assert "epoch 3 began" in str(caught.value)
            assert "3 events wait" in str(caught.value)
            assert "away" in str(caught.value)
            w.server.start()
        await w.publish(4)
        assert sorted(await w.epochs()) == [0, 1, 2, 4]

    in_virtual_time(story)


def test_one_that_is_cancelled_makes_room_and_is_not_sent_later() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim, waiting=1)
        await w.owner.ensure(EVENTS)
        w.server.stop()
        publishing = asyncio.ensure_future(w.publish(1))
        await sim.clock.sleep(1.0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert w.chronicle.waiting == 0
        w.server.start()
        await w.publish(2)
        assert await w.epochs() == [2]

    in_virtual_time(story)


def test_a_refusal_is_the_publishers_to_know_and_is_not_tried_again() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim)
        await w.owner.ensure(EVENTS)
        began = sim.clock.monotonic()
        with pytest.raises(BusError, match="65536"):
            await w.chronicle.publish(LeaderEvent(holder="x" * 70_000, epoch=1), message="long")
        assert sim.clock.monotonic() - began < events.RETRY_FIRST
        assert w.chronicle.waiting == 0

    in_virtual_time(story)


def test_a_slow_reader_gets_everything_and_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_BUFFERED", 10)

    async def story(sim: Sim) -> None:
        handed_over: list[int] = []
        w = World(sim)
        await w.owner.ensure(EVENTS)
        for epoch in range(100):
            await w.publish(epoch)
        w.server.add_tracer(
            lambda it: handed_over.append(it.sequence) if it.what == "read" else None
        )
        async with read_events(bus=w.reader, cluster="default", start=FromSequence(1)) as entries:
            seen = 0
            async for entry in entries:
                assert epoch_of(entry) == seen
                seen += 1
                if seen == 50:
                    for epoch in range(100, 300):
                        await w.publish(epoch)
        assert seen == 300
        assert handed_over == list(range(1, 301))

    in_virtual_time(story)


def test_a_reader_that_follows_goes_on_over_interruptions() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim)
        await w.owner.ensure(EVENTS)
        await w.publish(0)

        async def interrupted() -> None:
            for epoch in range(1, 20):
                w.server.cut(READER)
                await w.publish(epoch)
                await sim.clock.sleep(10.0)
                w.server.restore(READER)
                await sim.clock.sleep(1.0)

        async with asyncio.TaskGroup() as group:
            group.create_task(interrupted())
            seen: list[int] = []
            async with read_events(
                bus=w.reader, cluster="default", start=FromSequence(1), follow=True
            ) as entries:
                async for entry in entries:
                    seen.append(epoch_of(entry))
                    if len(seen) == 20:
                        break
        assert seen == list(range(20))

    in_virtual_time(story)


def test_a_reading_that_waits_can_be_cancelled() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim)
        await w.owner.ensure(EVENTS)
        w.server.stop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100.0):
                await w.epochs()
        assert sim.clock.monotonic() == pytest.approx(100.0)

    in_virtual_time(story)


def test_a_reader_that_gave_up_waiting_can_ask_again() -> None:
    async def story(sim: Sim) -> None:
        w = World(sim)
        await w.owner.ensure(EVENTS)
        async with read_events(
            bus=w.reader, cluster="default", start=FromSequence(), follow=True
        ) as entries:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5.0):
                    await anext(entries)
            await w.publish(1)
            assert epoch_of(await anext(entries)) == 1

    in_virtual_time(story)
