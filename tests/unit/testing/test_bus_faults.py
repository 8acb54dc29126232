"""Random faults of the in-process bus, one kind at a time."""

import pytest

from libs.bus.port import BusUnavailable, FromSequence, LastPerSubject
from libs.testing.bus import BusFaults, LocalServer
from libs.testing.simulation import Sim
from tests.component.bus.recorders import RecordingFollower, RecordingHandler
from tests.unit.testing.bus import KEPT, READER, WRITER, with_bus


def received_with(faults: BusFaults, *, messages: int) -> tuple[list[int], float]:
    """Publish numbers; return those received, and the seconds until the last one."""
    handler = RecordingHandler()
    last: list[float] = []

    async def scenario(sim: Sim, server: LocalServer) -> None:
        writer, reader = server.connect(WRITER), server.connect(READER)

        def record(subject: str, data: bytes, reply: str) -> None:
            handler(subject, data, reply)
            last.append(sim.clock.monotonic())

        await reader.subscribe("test.a", record)
        started = sim.clock.monotonic()
        for number in range(messages):
            await writer.publish("test.a", b"%d" % number)
        await sim.clock.sleep(3_600.0)
        last[:] = [last[-1] - started]

    with_bus(scenario, faults)
    return [int(data) for _, data in handler.received], last[0]


def test_without_faults_nothing_takes_time() -> None:
    assert received_with(BusFaults(), messages=100) == (list(range(100)), 0.0)


def test_core_messages_are_lost() -> None:
    received, _ = received_with(BusFaults(lost=0.3), messages=1_000)
    assert 600 < len(received) < 800
    assert received == sorted(set(received))


def test_core_messages_are_reordered() -> None:
    received, _ = received_with(BusFaults(reordered=0.3), messages=100)
    assert received != sorted(received)
    assert sorted(received) == list(range(100))


def test_a_stream_is_read_once_and_in_order_despite_faults_of_core_messages() -> None:
    follower = RecordingFollower()

    async def scenario(sim: Sim, server: LocalServer) -> None:
        writer, reader = server.connect(WRITER), server.connect(READER)
        await writer.ensure(KEPT)
        reading = await reader.follow(KEPT, "kept.>", follower, start=FromSequence())
        for _ in range(100):
            await writer.store(KEPT, "kept.a", b"")
        await sim.clock.sleep(60.0)
        await reading.close()

    with_bus(scenario, BusFaults(lost=0.5, repeated=0.5, reordered=0.5, delayed=0.1))
    assert [message.sequence for message in follower.messages] == list(range(1, 101))
    assert follower.calls.count("began") == follower.calls.count("caught up") == 1


@pytest.mark.parametrize(
    ("faults", "kept"),
    [(BusFaults(call_lost=0.5), False), (BusFaults(answer_lost=0.5), True)],
    ids=["call", "answer"],
)
def test_an_unanswered_write_may_have_been_stored(faults: BusFaults, kept: bool) -> None:
    follower = RecordingFollower()
    answered: list[str] = []
    unanswered: list[str] = []

    async def scenario(sim: Sim, server: LocalServer) -> None:
        writer, reader = server.connect(WRITER), server.connect(READER)
        while True:
            try:
                await writer.ensure(KEPT)
                break
            except BusUnavailable:
                continue
        reading = await reader.follow(KEPT, "kept.>", follower, start=FromSequence())
        for number in range(40):
            started = sim.clock.monotonic()
            try:
                await writer.store(KEPT, "kept.a", b"%d" % number)
            except BusUnavailable:
                unanswered.append(str(number))
                assert sim.clock.monotonic() - started == 5.0
            else:
                answered.append(str(number))
                assert sim.clock.monotonic() == started
        await reading.close()

    with_bus(scenario, faults)
    stored = [message.data.decode() for message in follower.messages]
    assert len(answered) > 5
    assert len(unanswered) > 5
    assert stored == (sorted(answered + unanswered, key=int) if kept else answered)


@pytest.mark.parametrize("seed", range(5))
def test_a_stream_is_read_completely_over_broken_links(seed: int) -> None:
    complete, latest = RecordingFollower(), RecordingFollower()
    ups: list[bool] = []

    async def scenario(sim: Sim, server: LocalServer) -> None:
        writer, reader = server.connect(WRITER), server.connect(READER)
        reader.link.watch(ups.append)
        while not writer.link.is_up:
            await sim.clock.sleep(1.0)
        await writer.ensure(KEPT)
        readings = [
            await reader.follow(KEPT, "kept.>", complete, start=FromSequence()),
            await reader.follow(KEPT, "kept.>", latest, start=LastPerSubject()),
        ]
        number = 0
        while number < 300:
            try:
                await writer.store(KEPT, f"kept.{number % 7}", b"", id=str(number))
            except BusUnavailable:
                await sim.clock.sleep(1.0)
            else:
                number += 1
                await sim.clock.sleep(0.5)
        while not reader.link.is_up or len(complete.messages) < 300:
            await sim.clock.sleep(1.0)
        for reading in readings:
            await reading.close()
        assert reader.link.down_seconds > 0.0

    faults = BusFaults(
        between_drops=(1.0, 20.0), dropped=(0.1, 10.0), delayed=0.3, delay=(0.0, 0.5)
    )
    with_bus(scenario, faults, seed=seed)
    assert [message.sequence for message in complete.messages] == list(range(1, 301))
    assert complete.calls.count("began") == 1
    assert ups.count(False) > 5
    assert ups == [index % 2 == 1 for index in range(len(ups))]
    assert complete.calls.count("lost") == latest.calls.count("lost") == ups.count(False)
    assert latest.calls.count("began") > 5
    assert latest.calls.count("began") <= ups.count(True) + 1
