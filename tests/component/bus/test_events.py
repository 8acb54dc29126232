"""Read stored events in order, on both implementations of the bus."""

import asyncio
from collections.abc import AsyncIterator

from libs.bus.events import ForeignEvent, MalformedEvent, RecordedEvent, StoredEvent, read_events
from libs.bus.port import Bus, BusRetry
from libs.contracts import subjects
from libs.contracts.events import Event, EventBody, FactsEvent, LeaderEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.subjects import EVENTS
from libs.testing.simulation import make_env
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

WRITER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DISCOVERY, node="a.example")
READER = Identity(writer=Writer.CTL)


async def store_event(bus: Bus, body: EventBody, *, id: str) -> Event:
    me = bus.identity
    event = Event.of(body, id=id, at=1.0, writer=me.writer, message="a message", node=me.node)
    subject = subjects.Event(
        cluster="default", node=event.node, writer=event.writer, kind=event.kind
    )
    await bus.store(EVENTS, str(subject), encode(event), id=id)
    return event


async def store_epoch(bus: Bus, epoch: int) -> Event:
    return await store_event(bus, LeaderEvent(holder="one", epoch=epoch), id=f"epoch-{epoch}")


async def stored_events(bus: Bus) -> list[StoredEvent]:
    async with read_events(bus=bus, cluster="default") as stored:
        return [event async for event in stored]


async def next_body(stored: AsyncIterator[StoredEvent]) -> EventBody:
    event = await anext(stored)
    assert isinstance(event, RecordedEvent)
    return event.event.open()


async def test_events_are_read_as_they_were_written(make_bus: MakeBus) -> None:
    writer, agent, reader = await make_bus(WRITER), await make_bus(AGENT), await make_bus(READER)
    await writer.ensure(EVENTS)
    written = [
        await store_epoch(writer, 3),
        await store_event(agent, FactsEvent(changed=("gpus",)), id="facts"),
    ]
    stored = await stored_events(reader)
    assert [entry.sequence for entry in stored] == [1, 2]
    assert [entry.event for entry in stored if isinstance(entry, RecordedEvent)] == written
    assert stored[0].time > 1_700_000_000


async def test_malformed_and_foreign_messages_are_marked(make_bus: MakeBus) -> None:
    writer, reader = await make_bus(WRITER), await make_bus(READER)
    await writer.ensure(EVENTS)
    subject = str(subjects.Event(cluster="default", node="", writer="scheduler", kind="leader"))
    claimed = Event.of(
        LeaderEvent(holder="x", epoch=9), id="1", at=1.0, writer="driver-cluster", message="mine"
    )
    await writer.store(EVENTS, subject, b"not an event")
    await writer.store(EVENTS, subject, encode(claimed))
    await store_epoch(writer, 1)
    malformed, foreign, good = await stored_events(reader)
    assert isinstance(malformed, MalformedEvent)
    assert malformed.subject == subject
    assert "Event" in malformed.why
    assert isinstance(foreign, ForeignEvent)
    assert foreign.event == claimed
    assert foreign.subject == subject
    assert isinstance(good, RecordedEvent)


async def test_a_following_reader_gets_new_events_across_a_server_restart(
    make_bus: MakeBus, control: ServerControl
) -> None:
    writer, reader = await make_bus(WRITER), await make_bus(READER)
    await writer.ensure(EVENTS)
    await store_epoch(writer, 0)
    async with read_events(bus=reader, cluster="default", follow=True) as stored:
        assert await next_body(stored) == LeaderEvent(holder="one", epoch=0)
        coming = asyncio.ensure_future(next_body(stored))
        await store_epoch(writer, 1)
        assert await coming == LeaderEvent(holder="one", epoch=1)
        await control.stop()
        await eventually(lambda: not writer.link.is_up)
        coming = asyncio.ensure_future(next_body(stored))
        await control.start()
        await BusRetry(env=make_env()).until_success(lambda: store_epoch(writer, 2))
        assert await coming == LeaderEvent(holder="one", epoch=2)


async def test_acknowledged_events_survive_server_restarts(
    make_bus: MakeBus, control: ServerControl
) -> None:
    writer, reader = await make_bus(WRITER), await make_bus(READER)
    await writer.ensure(EVENTS)
    retry = BusRetry(env=make_env())
    async with asyncio.TaskGroup() as group:
        for epoch in range(90):
            group.create_task(retry.until_success(lambda epoch=epoch: store_epoch(writer, epoch)))
            if epoch % 30 == 10:
                await control.stop()
            if epoch % 30 == 20:
                await control.start()
            await asyncio.sleep(0)
    await eventually(lambda: reader.link.is_up)
    bodies = [
        entry.event.open()
        for entry in await stored_events(reader)
        if isinstance(entry, RecordedEvent)
    ]
    assert len(bodies) == 90
    assert {body.epoch for body in bodies if isinstance(body, LeaderEvent)} == set(range(90))
