"""Following a stream, on both implementations."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from libs.bus.port import (
    Bus,
    Closable,
    Follower,
    FromSequence,
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
    description="what a test stores",
    per_subject=2,
    max_message=1024,
    max_consumers=16,
)
Follow = Callable[[Bus, str, Follower, StartFrom], Awaitable[Closable]]
STARTS = (LastPerSubject(), FromSequence())


@pytest.fixture
async def follow(make_bus: MakeBus) -> AsyncIterator[Follow]:
    """A function that follows a stream; it stops before the connections are closed."""
    async with AsyncExitStack() as stack:

        async def follow_stream(
            bus: Bus, pattern: str, follower: Follower, start: StartFrom
        ) -> Closable:
            subscription = await bus.follow(KEPT, pattern, follower, start=start)
            stack.push_async_callback(subscription.close)
            return subscription

        yield follow_stream


async def stored(bus: Bus, *texts: str) -> None:
    """Store these texts; the first letter of each is the last token of its subject."""
    for text in texts:
        await bus.store(KEPT, f"kept.{text[0]}", text.encode())


async def interrupted(bus: Bus, control: ServerControl) -> None:
    await control.stop()
    await eventually(lambda: not bus.link.is_up)
    await control.start()
    await eventually(lambda: bus.link.is_up)


@pytest.mark.parametrize("start", STARTS)
async def test_an_empty_stream_is_caught_up_at_once(
    make_bus: MakeBus, follow: Follow, start: StartFrom
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await follow(bus, "kept.>", follower, start)
    await eventually(lambda: follower.calls == ["began", "caught up"])
    await stored(bus, "a1")
    await eventually(lambda: follower.calls == ["began", "caught up", "1 a1"])


@pytest.mark.parametrize(
    ("start", "read"),
    [
        (LastPerSubject(), ["4 b2", "5 a3", "6 c1"]),
        (FromSequence(), ["2 b1", "3 a2", "4 b2", "5 a3", "6 c1"]),
        (FromSequence(4), ["4 b2", "5 a3", "6 c1"]),
        (FromSequence(7), []),
    ],
    ids=str,
)
async def test_reading_starts_at_the_given_sequence_and_continues(
    make_bus: MakeBus, follow: Follow, start: StartFrom, read: list[str]
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1", "a2", "b2", "a3", "c1")
    await follow(bus, "kept.>", follower, start)
    await eventually(lambda: follower.calls == ["began", *read, "caught up"])
    await stored(bus, "a4", "b3")
    await eventually(lambda: follower.calls == ["began", *read, "caught up", "7 a4", "8 b3"])


async def test_a_message_is_read_as_it_was_stored(make_bus: MakeBus, follow: Follow) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1")
    await follow(bus, "kept.>", follower, FromSequence())
    await eventually(lambda: follower.calls == ["began", "1 a1", "caught up"])
    last = await bus.last(KEPT, "kept.a")
    assert last is not None
    [read] = follower.messages
    assert (read.subject, read.sequence, read.data) == (last.subject, last.sequence, last.data)
    assert read.time == pytest.approx(last.time, abs=1e-5)


@pytest.mark.parametrize("start", STARTS)
async def test_only_matching_subjects_are_read(
    make_bus: MakeBus, follow: Follow, start: StartFrom
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    await follow(bus, "kept.b", follower, start)
    await eventually(lambda: follower.calls == ["began", "2 b1", "caught up"])
    await stored(bus, "a2", "b2")
    await eventually(lambda: follower.calls == ["began", "2 b1", "caught up", "4 b2"])


async def test_many_messages_are_read_in_order(make_bus: MakeBus, follow: Follow) -> None:
    bus, writer, follower = await make_bus(SCHEDULER), await make_bus(CTL), RecordingFollower()
    await bus.ensure(KEPT)
    await follow(bus, "kept.>", follower, FromSequence())
    for number in range(300):
        await writer.store(KEPT, f"kept.{number}", b"")
    await eventually(lambda: len(follower.messages) == 300)
    assert [message.sequence for message in follower.messages] == list(range(1, 301))
    assert follower.calls.count("began") == 1


async def test_last_messages_are_read_again_after_an_interruption(
    make_bus: MakeBus, follow: Follow, control: ServerControl
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    await follow(bus, "kept.>", follower, LastPerSubject())
    await eventually(lambda: follower.calls == ["began", "1 a1", "2 b1", "caught up"])
    await stored(bus, "b2")
    await bus.purge(KEPT, "kept.a")
    await eventually(lambda: follower.calls[-1] == "3 b2")
    await interrupted(bus, control)
    first = ["began", "1 a1", "2 b1", "caught up", "3 b2"]
    await eventually(lambda: follower.calls == [*first, "lost", "began", "3 b2", "caught up"])


async def test_reading_resumes_after_an_interruption(
    make_bus: MakeBus, follow: Follow, control: ServerControl
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "a2", "a3")
    await follow(bus, "kept.>", follower, FromSequence(2))
    read = ["began", "2 a2", "3 a3", "caught up"]
    await eventually(lambda: follower.calls == read)
    await interrupted(bus, control)
    read += ["lost", "caught up"]
    await eventually(lambda: follower.calls == read)
    await stored(bus, "b1")
    read += ["4 b1"]
    await eventually(lambda: follower.calls == read)
    await interrupted(bus, control)
    read += ["lost", "caught up"]
    await eventually(lambda: follower.calls == read)


@pytest.mark.parametrize("start", [LastPerSubject(), FromSequence(2)], ids=str)
async def test_a_recreated_stream_is_read_from_its_beginning(
    make_bus: MakeBus, follow: Follow, control: ServerControl, start: StartFrom
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1", "b1")
    await follow(bus, "kept.>", follower, start)
    await eventually(lambda: follower.calls[-2:] == ["2 b1", "caught up"])
    before = len(follower.calls)
    await control.lose(KEPT)
    await eventually(lambda: "lost" in follower.calls)
    await eventually(lambda: bus.link.is_up)
    await stored(bus, "c1")
    await eventually(lambda: "1 c1" in follower.calls and follower.calls.count("caught up") == 2)
    after = [call for call in follower.calls[before:] if call != "caught up"]
    assert after == ["lost", "began anew", "1 c1"]


async def test_following_waits_for_an_unavailable_bus(
    make_bus: MakeBus, follow: Follow, control: ServerControl
) -> None:
    bus, follower = await make_bus(SCHEDULER), RecordingFollower()
    await bus.ensure(KEPT)
    await stored(bus, "a1")
    await control.stop()
    await eventually(lambda: not bus.link.is_up)
    await follow(bus, "kept.>", follower, LastPerSubject())
    assert "caught up" not in follower.calls
    await control.start()
    await eventually(lambda: follower.calls[-3:] == ["began", "1 a1", "caught up"])


async def test_following_waits_for_a_missing_stream(make_bus: MakeBus, follow: Follow) -> None:
    owner, bus, follower = await make_bus(SCHEDULER), await make_bus(CTL), RecordingFollower()
    await follow(bus, "kept.>", follower, LastPerSubject())
    await owner.ensure(KEPT)
    await stored(owner, "a1")
    await eventually(lambda: "1 a1" in follower.calls and "caught up" in follower.calls)


async def test_after_close_nothing_is_read(
    make_bus: MakeBus, follow: Follow, control: ServerControl
) -> None:
    bus, closed, follower = await make_bus(SCHEDULER), RecordingFollower(), RecordingFollower()
    await bus.ensure(KEPT)
    subscription = await bus.follow(KEPT, "kept.>", closed, start=FromSequence())
    await follow(bus, "kept.>", follower, FromSequence())
    await stored(bus, "a1")
    await eventually(lambda: closed.calls[-1] == follower.calls[-1] == "1 a1")
    await subscription.close()
    calls = list(closed.calls)
    await stored(bus, "a2")
    await eventually(lambda: follower.calls[-1] == "2 a2")
    await interrupted(bus, control)
    await eventually(lambda: follower.calls[-2:] == ["lost", "caught up"])
    assert closed.calls == calls
