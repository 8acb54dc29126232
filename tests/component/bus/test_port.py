"""Core messages, requests and the link, on both implementations."""

import asyncio

import pytest

from libs.bus.port import Bus, BusUnavailable, NoResponders
from libs.contracts.identities import Identity, Writer
from tests.component.bus.recorders import RecordingHandler
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

SCHEDULER = Identity(writer=Writer.SCHEDULER)
CTL = Identity(writer=Writer.CTL)


async def until_received(
    handler: RecordingHandler, bus: Bus, subject: str, *, over: Bus | None = None
) -> None:
    """Send a last message and wait for it: earlier messages have then arrived or are lost."""
    await (over or bus).publish(subject, b"end of test")
    await eventually(lambda: (subject, b"end of test") in handler.received)
    handler.received.remove((subject, b"end of test"))


async def test_subscribers_receive_messages_in_order(make_bus: MakeBus) -> None:
    sender, receiver, handler = await make_bus(SCHEDULER), await make_bus(CTL), RecordingHandler()
    await receiver.subscribe("test.a", handler)
    for number in range(100):
        await sender.publish("test.a", b"%d" % number)
    await until_received(handler, sender, "test.a")
    assert handler.received == [("test.a", b"%d" % number) for number in range(100)]


async def test_a_connection_receives_its_own_messages(make_bus: MakeBus) -> None:
    bus, handler = await make_bus(SCHEDULER), RecordingHandler()
    await bus.subscribe("test.a", handler)
    await bus.publish("test.a", b"me")
    await eventually(lambda: handler.received == [("test.a", b"me")])


@pytest.mark.parametrize(
    ("pattern", "received"),
    [
        ("test.a", ["test.a"]),
        ("test.*", ["test.a", "test.b"]),
        ("test.*.c", ["test.a.c", "test.b.c"]),
        ("test.>", ["test.a", "test.b", "test.a.c", "test.b.c"]),
    ],
)
async def test_a_pattern_receives_matching_subjects(
    make_bus: MakeBus, pattern: str, received: list[str]
) -> None:
    bus, handler, end = await make_bus(SCHEDULER), RecordingHandler(), RecordingHandler()
    await bus.subscribe(pattern, handler)
    await bus.subscribe("end", end)
    for subject in ("test.a", "test.b", "test.a.c", "test.b.c", "tests.a"):
        await bus.publish(subject, b"")
    await until_received(end, bus, "end")
    await eventually(lambda: len(handler.received) == len(received))
    assert [subject for subject, _ in handler.received] == received


async def test_earlier_messages_are_not_received(make_bus: MakeBus) -> None:
    bus, handler = await make_bus(SCHEDULER), RecordingHandler()
    await bus.publish("test.a", b"before")
    await bus.subscribe("test.a", handler)
    await until_received(handler, bus, "test.a")
    assert handler.received == []


async def test_one_group_member_receives_each_message(make_bus: MakeBus) -> None:
    sender, alone = await make_bus(SCHEDULER), RecordingHandler()
    members = [RecordingHandler() for _ in range(3)]
    for member in members:
        await (await make_bus(CTL)).subscribe("test.*", member, group="us")
    await sender.subscribe("test.*", alone)
    for number in range(60):
        await sender.publish("test.a", b"%d" % number)
    await eventually(lambda: sum(len(member.received) for member in members) >= 60)
    await eventually(lambda: len(alone.received) == 60)
    everything = sorted(message for member in members for message in member.received)
    assert everything == sorted(("test.a", b"%d" % number) for number in range(60))
    assert all(member.received for member in members)


async def test_after_close_only_received_messages_are_handled(make_bus: MakeBus) -> None:
    bus, handler, end = await make_bus(SCHEDULER), RecordingHandler(), RecordingHandler()
    subscription = await bus.subscribe("test.a", handler)
    await bus.subscribe("end", end)
    for number in range(50):
        await bus.publish("test.a", b"%d" % number)
    await until_received(end, bus, "end")
    await subscription.close()
    assert len(handler.received) == 50
    await bus.publish("test.a", b"late")
    await until_received(end, bus, "end")
    assert len(handler.received) == 50


async def test_calls_during_an_outage_raise_at_once_and_buffer_nothing(
    make_bus: MakeBus, control: ServerControl
) -> None:
    bus, handler = await make_bus(SCHEDULER), RecordingHandler()
    await bus.subscribe("test.a", handler)
    await control.stop()
    await eventually(lambda: not bus.link.is_up)
    with pytest.raises(BusUnavailable, match=r"test\.a"):
        await bus.publish("test.a", b"while away")
    with pytest.raises(BusUnavailable):
        await bus.request("test.a", b"while away", timeout=60.0)
    with pytest.raises(BusUnavailable):
        await bus.subscribe("test.b", handler)
    await control.start()
    await eventually(lambda: bus.link.is_up)
    await until_received(handler, bus, "test.a")
    assert handler.received == []


async def test_subscriptions_survive_an_interruption(
    make_bus: MakeBus, control: ServerControl
) -> None:
    bus, handler, member = await make_bus(SCHEDULER), RecordingHandler(), RecordingHandler()
    await bus.subscribe("test.a", handler)
    await bus.subscribe("test.a", member, group="us")
    await control.stop()
    await eventually(lambda: not bus.link.is_up)
    await control.start()
    await eventually(lambda: bus.link.is_up)
    await bus.publish("test.a", b"again")
    await eventually(lambda: handler.received == member.received == [("test.a", b"again")])


# Requests.


class Answers:
    """Answers requests, once per prefix."""

    def __init__(self, bus: Bus, *answers: bytes) -> None:
        self._bus = bus
        self._answers = answers
        self.asked: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, _subject: str, data: bytes, reply: str) -> None:
        self.asked.append(data)
        task = asyncio.create_task(self._answer(reply, data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reply: str, data: bytes) -> None:
        for answer in self._answers:
            await self._bus.publish(reply, answer + data)


async def test_a_request_returns_the_first_answer(make_bus: MakeBus) -> None:
    service, asker = await make_bus(SCHEDULER), await make_bus(CTL)
    await service.subscribe("ask.*", Answers(service, b"first ", b"second "), group="us")
    assert await asker.request("ask.a", b"1") == b"first 1"
    assert await asker.request("ask.a", b"2") == b"first 2"


async def test_concurrent_requests_get_their_own_answers(make_bus: MakeBus) -> None:
    service, asker = await make_bus(SCHEDULER), await make_bus(CTL)
    await service.subscribe("ask.a", Answers(service, b"to "))
    got = await asyncio.gather(*(asker.request("ask.a", b"%d" % n) for n in range(20)))
    assert got == [b"to %d" % n for n in range(20)]


async def test_one_group_member_receives_each_request(make_bus: MakeBus) -> None:
    service, asker = await make_bus(SCHEDULER), await make_bus(CTL)
    members = [Answers(service, b"") for _ in range(2)]
    for member in members:
        await service.subscribe("ask.a", member, group="us")
    for _ in range(20):
        await asker.request("ask.a", b"?")
    assert sum(len(member.asked) for member in members) == 20


async def test_a_request_without_responders_raises_at_once(make_bus: MakeBus) -> None:
    bus = await make_bus(CTL)
    with pytest.raises(NoResponders, match=r"ask\.a"):
        await bus.request("ask.a", b"?", timeout=600.0)


async def test_a_request_without_answer_raises_unavailable(make_bus: MakeBus) -> None:
    bus, silent = await make_bus(CTL), RecordingHandler()
    await bus.subscribe("ask.a", silent)
    with pytest.raises(BusUnavailable, match=r"ask\.a"):
        await bus.request("ask.a", b"?", timeout=0.05)
    assert silent.received == [("ask.a", b"?")]


async def test_a_broken_link_fails_pending_requests(
    make_bus: MakeBus, control: ServerControl
) -> None:
    bus, silent = await make_bus(CTL), RecordingHandler()
    await bus.subscribe("ask.a", silent)
    asking = asyncio.create_task(bus.request("ask.a", b"?", timeout=600.0))
    await eventually(lambda: silent.received == [("ask.a", b"?")])
    await control.stop()
    with pytest.raises(BusUnavailable, match=r"ask\.a"):
        await asking


# The link.


async def test_the_link_reports_outages(make_bus: MakeBus, control: ServerControl) -> None:
    bus = await make_bus(SCHEDULER)
    states: list[bool] = []
    states_until_stopped: list[bool] = []
    bus.link.watch(states.append)
    stop_watching = bus.link.watch(states_until_stopped.append)
    assert bus.link.is_up
    before = bus.link.down_seconds
    await control.stop()
    await eventually(lambda: states == [False])
    stop_watching()
    assert not bus.link.is_up
    now = bus.link.down_seconds
    await eventually(lambda: bus.link.down_seconds > now)
    await control.start()
    await eventually(lambda: states == [False, True])
    assert bus.link.is_up
    after = bus.link.down_seconds
    assert after > before
    await bus.publish("test.a", b"")
    assert bus.link.down_seconds == after
    assert states_until_stopped == [False]


async def test_a_bus_has_its_identity(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    assert bus.identity == SCHEDULER


async def test_all_answers_to_a_request_are_gathered(make_bus: MakeBus) -> None:
    asker, *answerers = [await make_bus(SCHEDULER) for _ in range(4)]
    tasks: list[asyncio.Task[None]] = []
    for number, answerer in enumerate(answerers):

        def answer(
            _subject: str, data: bytes, reply: str, bus: Bus = answerer, number: int = number
        ) -> None:
            for part in (b"a", b"b"):
                answered = b"%d%s %s" % (number, part, data)
                tasks.append(asyncio.create_task(bus.publish(reply, answered)))

        await answerer.subscribe("test.ask", answer)

    answers = await asker.request_all("test.ask", b"?", within=5.0)  # it ends no sooner

    assert sorted(answers) == [b"0a ?", b"0b ?", b"1a ?", b"1b ?", b"2a ?", b"2b ?"]
    await asyncio.gather(*tasks)
    with pytest.raises(NoResponders):
        await asker.request_all("test.nobody", b"?", within=1.0)


async def test_a_request_to_all_fails_when_the_link_breaks(
    make_bus: MakeBus, control: ServerControl
) -> None:
    asker = await make_bus(SCHEDULER)
    await asker.subscribe("test.ask", RecordingHandler())
    asking = asyncio.create_task(asker.request_all("test.ask", b"?", within=60.0))
    await asyncio.sleep(0.05)
    await control.stop()
    with pytest.raises(BusUnavailable):
        await asking
    with pytest.raises(BusUnavailable):
        await asker.request_all("test.ask", b"?", within=1.0)
    await control.start()
