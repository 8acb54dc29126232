"""Streams that are deleted while no process uses them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from libs.bus.nats.jetstream import configuration
from libs.bus.port import BusUnavailable
from libs.bus.streams import PERIOD, keep_streams, streams_with
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS, Stream
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim
from tests.unit.bus.simulated import in_simulation


class World:
    """A scheduler's connection that keeps the streams, and an idle agent."""

    def __init__(self, sim: Sim) -> None:
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"))
        self.scheduler = self.server.connect(Identity(writer=Writer.SCHEDULER))
        self.agent = self.server.connect(Identity(writer=Writer.DRIVER, node="a.example"))

    async def exists(self, stream: Stream) -> bool:
        try:
            await self.agent.last(stream, stream.subjects[0].replace(">", "x"))
        except BusUnavailable:
            return False
        return True


@asynccontextmanager
async def enter_world(sim: Sim) -> AsyncGenerator[World]:
    world = World(sim)
    keeping = asyncio.create_task(
        keep_streams(bus=world.scheduler, clock=sim.clock, streams=STREAMS), name="keep streams"
    )
    try:
        yield world
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


in_virtual_time = in_simulation(enter_world)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
@in_virtual_time
async def test_a_stream_that_was_deleted_while_idle_is_created_again(
    world: World, stream: Stream
) -> None:
    await world.clock.sleep(PERIOD + 1.0)
    assert await world.exists(stream)
    world.server.lose_stream(stream)
    assert not await world.exists(stream)
    await world.clock.sleep(PERIOD + 1.0)
    assert await world.exists(stream)


@in_virtual_time
async def test_an_outage_of_the_bus_is_survived(world: World) -> None:
    world.server.stop()
    await world.clock.sleep(3 * PERIOD)
    world.server.start()
    await world.clock.sleep(PERIOD + 1.0)
    assert [stream for stream in STREAMS if not await world.exists(stream)] == []


def test_streams_with_replicas_differ_in_nothing_else() -> None:
    assert streams_with(1) == STREAMS
    assert [stream.replicas for stream in streams_with(3)] == [3, 3, 3]
    for ours, stream in zip(streams_with(3), STREAMS, strict=True):
        assert configuration(ours) == configuration(stream) | {"num_replicas": 3}
