"""Outages of the in-process bus that a test causes."""

import asyncio

import pytest

from libs.bus.port import BusUnavailable, FromSequence, LastPerSubject, StartFrom
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim
from tests.component.bus.recorders import RecordingFollower, RecordingHandler
from tests.unit.testing.bus import KEPT, READER, WRITER, with_bus

SLOW = BusFaults(delayed=1.0, delay=(1.0, 1.0))


async def assert_all_unavailable(bus: LocalBus) -> None:
    """Check that every call fails at once with BusUnavailable."""
    for call in (
        bus.publish("test.a", b""),
        bus.request("test.a", b""),
        bus.subscribe("test.a", RecordingHandler()),
        bus.ensure(KEPT),
        bus.store(KEPT, "kept.a", b""),
        bus.last(KEPT, "kept.a"),
        bus.purge(KEPT, "kept.a"),
    ):
        with pytest.raises(BusUnavailable):
            await call


def test_a_cut_affects_all_connections_of_one_identity() -> None:
    async def scenario(sim: Sim, server: LocalServer) -> None:
        writer, reader, handler = server.connect(WRITER), server.connect(READER), RecordingHandler()
        await reader.subscribe("test.a", handler)
        server.cut(READER)
        second = server.connect(READER)
        assert (writer.link.is_up, reader.link.is_up, second.link.is_up) == (True, False, False)
        await writer.publish("test.a", b"meanwhile")
        await assert_all_unavailable(reader)
        await sim.clock.sleep(10.0)
        server.restore(READER)
        assert reader.link.is_up
        assert second.link.is_up
        assert reader.link.down_seconds == 10.0
        await writer.publish("test.a", b"after")
        await sim.clock.sleep(1.0)
        assert handler.received == [("test.a", b"after")]

    with_bus(scenario)


@pytest.mark.parametrize("remade", [False, True])
@pytest.mark.parametrize("start", [LastPerSubject(), FromSequence(2)], ids=str)
def test_a_follower_notices_a_lost_stream_after_its_silence(remade: bool, start: StartFrom) -> None:
    async def scenario(sim: Sim, server: LocalServer) -> None:
        writer, reader, follower = (
            server.connect(WRITER),
            server.connect(READER),
            RecordingFollower(),
        )
        await writer.ensure(KEPT)
        await writer.store(KEPT, "kept.a", b"x")
        await writer.store(KEPT, "kept.b", b"y")
        reading = await reader.follow(KEPT, "kept.b", follower, start=start)
        await sim.clock.sleep(1.0)
        assert follower.calls == ["began", "2 y", "caught up"]
        server.lose_stream(KEPT, remade=remade)
        assert await writer.store(KEPT, "kept.b", b"anew") == 1
        await sim.clock.sleep(5.0)
        assert follower.calls[3:] == []
        await sim.clock.sleep(2.0)
        assert follower.calls[3:] == ["lost", "began anew", "1 anew", "caught up"]
        await writer.store(KEPT, "kept.b", b"z")
        await sim.clock.sleep(1.0)
        assert follower.calls[7:] == ["2 z"]
        await reading.close()

    with_bus(scenario)


def test_calls_of_a_killed_connection_do_not_reach_the_server() -> None:
    async def scenario(sim: Sim, server: LocalServer) -> None:
        dying, other, handler, follower = (
            server.connect(WRITER),
            server.connect(READER),
            RecordingHandler(),
            RecordingFollower(),
        )
        killed_handler = RecordingHandler()
        await other.ensure(KEPT)
        await other.subscribe("test.>", handler)
        await dying.subscribe("test.>", killed_handler)
        await dying.follow(KEPT, "kept.>", follower, start=FromSequence())
        await sim.clock.sleep(10.0)
        calls_before = list(follower.calls)
        await dying.publish("test.a", b"under way")
        storing = asyncio.create_task(dying.store(KEPT, "kept.a", b"under way"))
        await sim.clock.sleep(0.5)
        dying.kill()
        with pytest.raises(BusUnavailable):
            await storing
        await assert_all_unavailable(dying)
        server.stop()
        server.start()
        server.cut(WRITER)
        server.restore(WRITER)
        await assert_all_unavailable(dying)
        assert not dying.link.is_up
        successor = server.connect(WRITER)
        assert successor.link.is_up
        await successor.publish("test.a", b"alive")
        await successor.store(KEPT, "kept.a", b"alive", expect=0)
        await sim.clock.sleep(60.0)
        assert handler.received == [("test.a", b"alive")]
        assert killed_handler.received == []
        assert follower.calls == calls_before

    with_bus(scenario, SLOW)
