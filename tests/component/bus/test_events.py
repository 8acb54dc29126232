"""Events on both implementations: acknowledged is kept, and read again in order."""

import asyncio
from collections.abc import AsyncIterator

from libs.bus.events import (
    Chronicle,
    ForeignEvent,
    MalformedEvent,
    RecordedEvent,
    StoredEvent,
    read_events,
)
from libs.bus.port import Bus, FromSequence, FromTime
from libs.contracts import subjects
from libs.contracts.events import Event, FactsEvent, LeaderEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.streams import EVENTS
from libs.runtime.clock import SystemClock
from libs.testing.env import make_env
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

WRITER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DISCOVERY, node="a.example")
READER = Identity(writer=Writer.CTL)


def chronicle_of(bus: Bus) -> Chronicle:
    return Chronicle(bus=bus, env=make_env())


async def publish(chronicle: Chronicle, epoch: int) -> None:
    await chronicle.publish(LeaderEvent(holder="one", epoch=epoch), message=f"epoch {epoch} began")


async def everything(bus: Bus, start: FromSequence | FromTime, **parts: str) -> list[StoredEvent]:
    async with read_events(bus=bus, cluster="default", start=start, **parts) as entries:  # pyright: ignore[reportArgumentType]
        return [entry async for entry in entries]


async def recorded(entries: AsyncIterator[StoredEvent]) -> RecordedEvent:
    entry = await anext(entries)
    assert isinstance(entry, RecordedEvent)
    return entry


async def test_an_event_that_was_acknowledged_is_read_as_it_was_written(make_bus: MakeBus) -> None:
    writer, agent, reader = await make_bus(WRITER), await make_bus(AGENT), await make_bus(READER)
    await writer.ensure(EVENTS)
    await chronicle_of(writer).publish(
        LeaderEvent(holder="one", epoch=3), message="began", node="b", node_uid="uid-b"
    )
    await publish(chronicle_of(writer), 4)
    await chronicle_of(agent).publish(FactsEvent(changed=("gpus",)), message="a GPU is gone")
    first, second, third = await everything(reader, FromSequence())
    assert isinstance(first, RecordedEvent)
    assert isinstance(second, RecordedEvent)
    assert isinstance(third, RecordedEvent)
    assert [entry.sequence for entry in (first, second, third)] == [1, 2, 3]
    assert first.time > 1_700_000_000
    assert (first.event.node, first.event.node_uid, first.event.writer) == (
        "b",
        "uid-b",
        "scheduler",
    )
    assert first.event.message == "began"
    assert first.event.open() == LeaderEvent(holder="one", epoch=3)
    assert second.event.node == ""
    assert (third.event.node, third.event.writer) == ("a.example", "discovery")
    assert len({first.event.id, second.event.id, third.event.id}) == 3


async def test_a_part_is_read_by_number_time_node_writer_and_kind(make_bus: MakeBus) -> None:
    writer, agent, reader = await make_bus(WRITER), await make_bus(AGENT), await make_bus(READER)
    await writer.ensure(EVENTS)
    for epoch in range(3):
        await publish(chronicle_of(writer), epoch)
    await chronicle_of(agent).publish(FactsEvent(changed=("gpus",)), message="a GPU is gone")
    start = FromSequence()
    assert len(await everything(reader, FromSequence(3))) == 2
    assert len(await everything(reader, start, writer="scheduler")) == 3
    assert len(await everything(reader, start, node="a.example")) == 1
    assert len(await everything(reader, start, node="")) == 3
    assert len(await everything(reader, start, kind="facts")) == 1
    assert len(await everything(reader, start, kind="step")) == 0
    assert len(await everything(reader, FromTime(0.0))) == 4
    third = (await everything(reader, FromSequence(3)))[0]
    assert third in await everything(reader, FromTime(third.time - 0.001))
    assert await everything(reader, FromTime(SystemClock().now() + 3_600.0)) == []


async def test_what_is_no_event_of_its_subject_is_marked(make_bus: MakeBus) -> None:
    writer, reader = await make_bus(WRITER), await make_bus(READER)
    await writer.ensure(EVENTS)
    subject = str(subjects.Event(cluster="default", node="", writer="scheduler", kind="leader"))
    claimed = Event.of(
        LeaderEvent(holder="x", epoch=9), id="1", at=1.0, writer="driver-cluster", message="mine"
    )
    await writer.store(EVENTS, subject, b"not an event")
    await writer.store(EVENTS, subject, encode(claimed))
    await publish(chronicle_of(writer), 1)
    unreadable, foreign, good = await everything(reader, FromSequence())
    assert isinstance(unreadable, MalformedEvent)
    assert unreadable.subject == subject
    assert "Event" in unreadable.why
    assert isinstance(foreign, ForeignEvent)
    assert foreign.event == claimed
    assert foreign.subject == subject
    assert isinstance(good, RecordedEvent)


async def test_a_reader_that_follows_hears_what_comes(
    make_bus: MakeBus, trouble: ServerControl
) -> None:
    writer, reader = await make_bus(WRITER), await make_bus(READER)
    await writer.ensure(EVENTS)
    chronicle = chronicle_of(writer)
    await publish(chronicle, 0)
    async with read_events(
        bus=reader, cluster="default", start=FromSequence(), follow=True
    ) as entries:
        assert (await recorded(entries)).event.open() == LeaderEvent(holder="one", epoch=0)
        coming = asyncio.ensure_future(recorded(entries))
        await publish(chronicle, 1)
        assert (await coming).event.open() == LeaderEvent(holder="one", epoch=1)
        await trouble.stop()
        await eventually(lambda: not writer.link.is_up)
        coming = asyncio.ensure_future(recorded(entries))
        publishing = asyncio.ensure_future(publish(chronicle, 2))
        await trouble.start()
        await publishing
        assert (await coming).event.open() == LeaderEvent(holder="one", epoch=2)


async def test_nothing_is_lost_that_was_acknowledged_while_the_server_comes_and_goes(
    make_bus: MakeBus, trouble: ServerControl
) -> None:
    writer, reader = await make_bus(WRITER), await make_bus(READER)
    await writer.ensure(EVENTS)
    chronicle = chronicle_of(writer)
    async with asyncio.TaskGroup() as group:
        for epoch in range(90):
            group.create_task(publish(chronicle, epoch))
            if epoch % 30 == 10:
                await trouble.stop()
            if epoch % 30 == 20:
                await trouble.start()
            await asyncio.sleep(0)
    assert chronicle.waiting == 0
    await eventually(lambda: reader.link.is_up)
    bodies = [
        entry.event.open()
        for entry in await everything(reader, FromSequence())
        if isinstance(entry, RecordedEvent)
    ]
    assert len(bodies) == 90
    epochs = {body.epoch for body in bodies if isinstance(body, LeaderEvent)}
    assert epochs == set(range(90))
