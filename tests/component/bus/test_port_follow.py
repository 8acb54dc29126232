"""Following a stream, on both implementations."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from libs.bus.port import (
    Bus,
    Closable,
    Follower,
    FromSequence,
    FromTime,
    LastPerSubject,
    StartFrom,
)
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import Stream
from tests.component.bus.recorders import RecordingFollower
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

SCHEDULER = Identity(writer=Writer.SCHEDULER)
CTL = Identity(writer=Writer.CTL)
KEPT = Stream(
    name="KEPT",
    subjects=("kept.>",),
    keeps="what a test stores",
    per_subject=2,
    max_message=1024,
    max_consumers=16,
)
Follow = Callable[[Bus, str, Follower, StartFrom], Awaitable[Closable]]
STARTS = (LastPerSubject(), FromSequence(), FromTime(0.0))


@pytest.fixture
async def follow(make_bus: MakeBus) -> AsyncIterator[Follow]:
    """Readings that end before their connections do."""
    async with AsyncExitStack() as readings:

        async def begin(bus: Bus, pattern: str, follower: Follower, start: StartFrom) -> Closable:
            reading = await bus.follow(KEPT, pattern, follower, start=start)
            readings.push_async_callback(reading.close)
            return reading

        yield begin


async def stored(bus: Bus, *words: str) -> None:
    """Each word is a subject's last token and the data."""
    for word in words:
        await bus.store(KEPT, f"kept.{word[0]}", word.encode())


async def interrupted(bus: Bus, trouble: ServerControl) -> None:
    await trouble.stop()
    await eventually(lambda: not bus.link.is_up)
    await trouble.start()
    await eventually(lambda: bus.link.is_up)


@pytest.mark.parametrize("start", STARTS)
async def test_an_empty_stream_is_caught_up_at_once(
    make_bus: MakeBus, follow: Follow, start: StartFrom
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await follow(bus, "kept.>", notes, start)
    await eventually(lambda: notes.calls == ["began", "caught up"])
    await stored(bus, "a1")
    await eventually(lambda: notes.calls == ["began", "caught up", "1 a1"])


@pytest.mark.parametrize(
    ("start", "read"),
    [
        (LastPerSubject(), ["4 b2", "5 a3", "6 c1"]),
        (FromSequence(), ["2 b1", "3 a2", "4 b2", "5 a3", "6 c1"]),
        (FromSequence(4), ["4 b2", "5 a3", "6 c1"]),
        (FromSequence(7), []),
        (FromTime(0.0), ["2 b1", "3 a2", "4 b2", "5 a3", "6 c1"]),
    ],
    ids=str,
)
async def test_reading_starts_at_the_given_sequence_and_continues(
    make_bus: MakeBus, follow: Follow, start: StartFrom, read: list[str]
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1", "a2", "b2", "a3", "c1")
    await follow(bus, "kept.>", notes, start)
    await eventually(lambda: notes.calls == ["began", *read, "caught up"])
    await stored(bus, "a4", "b3")
    await eventually(lambda: notes.calls == ["began", *read, "caught up", "7 a4", "8 b3"])


async def test_reading_starts_at_a_given_time(make_bus: MakeBus, follow: Follow) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    first = await bus.last(KEPT, "kept.b")
    assert first is not None
    await eventually(lambda: time.time() > first.time + 0.002)
    await stored(bus, "b2")
    second = await bus.last(KEPT, "kept.b")
    assert second is not None
    since = (first.time + second.time) / 2
    await follow(bus, "kept.>", notes, FromTime(since))
    await eventually(lambda: notes.calls == ["began", "3 b2", "caught up"])


async def test_a_message_is_read_as_it_was_stored(make_bus: MakeBus, follow: Follow) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1")
    await follow(bus, "kept.>", notes, FromSequence())
    await eventually(lambda: notes.calls == ["began", "1 a1", "caught up"])
    last = await bus.last(KEPT, "kept.a")
    assert last is not None
    [read] = notes.messages
    assert (read.subject, read.sequence, read.data) == (last.subject, last.sequence, last.data)
    assert read.time == pytest.approx(last.time, abs=1e-5)


@pytest.mark.parametrize("start", STARTS)
async def test_only_matching_subjects_are_read(
    make_bus: MakeBus, follow: Follow, start: StartFrom
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    await follow(bus, "kept.b", notes, start)
    await eventually(lambda: notes.calls == ["began", "2 b1", "caught up"])
    await stored(bus, "a2", "b2")
    await eventually(lambda: notes.calls == ["began", "2 b1", "caught up", "4 b2"])


async def test_many_messages_are_read_in_order(make_bus: MakeBus, follow: Follow) -> None:
    bus, writer, notes = await make_bus(SCHEDULER), await make_bus(CTL), RecordingFollower()
    await bus.ensure(KEPT)
    await follow(bus, "kept.>", notes, FromSequence())
    for number in range(300):
        await writer.store(KEPT, f"kept.{number}", b"")
    await eventually(lambda: len(notes.messages) == 300)
    assert [message.sequence for message in notes.messages] == list(range(1, 301))
    assert notes.calls.count("began") == 1


async def test_last_messages_are_read_again_after_an_interruption(
    make_bus: MakeBus, follow: Follow, trouble: ServerControl
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    await follow(bus, "kept.>", notes, LastPerSubject())
    await eventually(lambda: notes.calls == ["began", "1 a1", "2 b1", "caught up"])
    await stored(bus, "b2")
    await bus.purge(KEPT, "kept.a")
    await eventually(lambda: notes.calls[-1] == "3 b2")
    await interrupted(bus, trouble)
    first = ["began", "1 a1", "2 b1", "caught up", "3 b2"]
    await eventually(lambda: notes.calls == [*first, "lost", "began", "3 b2", "caught up"])


@pytest.mark.parametrize("start", [FromSequence(2), FromTime(0.0)], ids=str)
async def test_reading_resumes_after_an_interruption(
    make_bus: MakeBus, follow: Follow, trouble: ServerControl, start: StartFrom
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "a2", "a3")
    await follow(bus, "kept.>", notes, start)
    read = ["began", "2 a2", "3 a3", "caught up"]
    await eventually(lambda: notes.calls == read)
    await interrupted(bus, trouble)
    read += ["lost", "caught up"]
    await eventually(lambda: notes.calls == read)
    await stored(bus, "b1")
    read += ["4 b1"]
    await eventually(lambda: notes.calls == read)
    await interrupted(bus, trouble)
    read += ["lost", "caught up"]
    await eventually(lambda: notes.calls == read)


@pytest.mark.parametrize("start", [LastPerSubject(), FromSequence(2), FromTime(0.0)], ids=str)
async def test_a_recreated_stream_is_read_from_its_beginning(
    make_bus: MakeBus, follow: Follow, trouble: ServerControl, start: StartFrom
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    await follow(bus, "kept.>", notes, start)
    await eventually(lambda: notes.calls[-2:] == ["2 b1", "caught up"])
    before = len(notes.calls)
    await trouble.lose(KEPT)
    await eventually(lambda: "lost" in notes.calls)
    await eventually(lambda: bus.link.is_up)
    await stored(bus, "c1")
    await eventually(lambda: "1 c1" in notes.calls and notes.calls.count("caught up") == 2)
    after = [told for told in notes.calls[before:] if told != "caught up"]
    assert after == ["lost", "began", "1 c1"]


async def test_following_waits_for_an_unavailable_bus(
    make_bus: MakeBus, follow: Follow, trouble: ServerControl
) -> None:
    bus, notes = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1")
    await trouble.stop()
    await eventually(lambda: not bus.link.is_up)
    await follow(bus, "kept.>", notes, LastPerSubject())
    assert "caught up" not in notes.calls
    await trouble.start()
    await eventually(lambda: notes.calls[-3:] == ["began", "1 a1", "caught up"])


async def test_following_waits_for_a_missing_stream(make_bus: MakeBus, follow: Follow) -> None:
    owner, bus, notes = await make_bus(SCHEDULER), await make_bus(CTL), RecordingFollower()
    await follow(bus, "kept.>", notes, LastPerSubject())
    await owner.ensure(KEPT)
    await stored(owner, "a1")
    await eventually(lambda: "1 a1" in notes.calls and "caught up" in notes.calls)


async def test_after_close_nothing_is_read(
    make_bus: MakeBus, follow: Follow, trouble: ServerControl
) -> None:
    bus, closed, notes = await make_bus(SCHEDULER), RecordingFollower(), RecordingFollower()
    await bus.ensure(KEPT)
    reading = await bus.follow(KEPT, "kept.>", closed, start=FromSequence())
    await follow(bus, "kept.>", notes, FromSequence())
    await stored(bus, "a1")
    await eventually(lambda: closed.calls[-1] == notes.calls[-1] == "1 a1")
    await reading.close()
    told = list(closed.calls)
    await stored(bus, "a2")
    await eventually(lambda: notes.calls[-1] == "2 a2")
    await interrupted(bus, trouble)
    await eventually(lambda: notes.calls[-2:] == ["lost", "caught up"])
    assert closed.calls == told
