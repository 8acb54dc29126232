"""Events cannot be withdrawn, so whatever a node stores must be harmless to every reader."""

from pathlib import Path

import msgspec
import pytest

from demo.output import EventFormatter
from demo.verdict import events_of
from libs.audit import AuditJournal, judge
from libs.bus.events import MalformedEvent, RecordedEvent, StoredEvent, read_events
from libs.contracts.events import CommandEvent, Event
from libs.contracts.message import encode
from libs.contracts.subjects import EVENTS, STATE
from libs.runtime.fatal import Fatal
from tests.security.identities import A_DRIVER, B_DRIVER, CTL, event
from tests.security.world import World

GOLDEN = Path("tests/contracts/golden/v1/event.command.json").read_bytes()


def of_a(content: CommandEvent, **changes: object) -> bytes:
    envelope = Event.of(
        content,
        id="x",
        at=1.0,
        writer=A_DRIVER.writer,
        message="a message",
        node=A_DRIVER.node,
        node_uid="uid",
    )
    return encode(msgspec.structs.replace(envelope, **changes))


COMMAND = CommandEvent(epoch=1, token=1, op=1, command="swap", phase="finished", outcome="done")
GOOD = of_a(COMMAND)

POISONS = {
    "nothing": b"",
    "bytes": b"\xff\xfe\x00",
    "text": b"an event",
    "null": b"null",
    "another shape": b'{"v":1,"id":[],"kind":{}}',
    "another version": GOOD.replace(b'"v":1', b'"v":2'),
    "a version of many digits": GOOD.replace(b'"v":1', b'"v":' + b"9" * 5_000),
    "deep lists": b'{"v":1,"body":' + b"[" * 15_000,
    "deep maps": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    "a number of many digits": GOOD.replace(b'"token":1', b'"token":' + b"9" * 5_000),
    "a large number": GOOD.replace(b'"token":1', b'"token":' + b"9" * 300),
    "a time without end": GOOD.replace(b'"at":1.0', b'"at":1e999'),
    "a late time": GOOD.replace(b'"at":1.0', b'"at":1e308'),
    "half a character": GOOD.replace(b"a message", b"\\ud800"),
    "control characters": GOOD.replace(b"a message", b"\\u001b[2Jgone\\nscheduler: \\u0000"),
    "a body of another kind": of_a(COMMAND, body=msgspec.Raw(b"[]")),
    "a body that is too deep": of_a(COMMAND, body=msgspec.Raw(b"[" * 500 + b"]" * 500)),
    "an unknown kind": of_a(COMMAND).replace(b'"kind":"command"', b'"kind":"invented"'),
    "another writer": of_a(COMMAND, writer="scheduler"),
    "another node": of_a(COMMAND, node=B_DRIVER.node),
    "a long id": of_a(COMMAND, id="x" * 10_000),
    "a golden file": GOLDEN,
}


async def read(world: World) -> list[StoredEvent]:
    ctl = await world.bus(CTL)
    async with read_events(bus=ctl, cluster="default") as entries:
        return [entry async for entry in entries]


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
async def test_a_poisoned_event_stops_no_reader(guarded: World, poison: bytes) -> None:
    attacker = await guarded.raw_client(A_DRIVER)
    before = len(await read(guarded))
    for data in (poison, GOOD):
        answer = msgspec.json.decode((await attacker.ask(event(A_DRIVER), data)).data)
        assert "error" not in answer

    entries = (await read(guarded))[before:]

    assert len(entries) == 2
    last = entries[-1]
    assert isinstance(last, RecordedEvent)
    assert last.event == msgspec.json.decode(GOOD, type=Event)
    assert not isinstance(entries[0], MalformedEvent) or entries[0].why
    events = await events_of(await guarded.bus(CTL))
    formatter = EventFormatter(dict, began=0.0)
    lines = [line for each in events for line in formatter.lines_for(each)]
    lines += [formatter.line("driver", each.message, at=each.at) for each in events]
    assert all(line.isprintable() for line in lines)
    judge(AuditJournal(revisions=(), entries=(), events=events, pools=()), faults=True)


async def test_reading_all_events_without_their_stream_ends(guarded: World) -> None:
    await guarded.server.lose_stream(EVENTS.name)
    with pytest.raises(Fatal, match="EVENTS is missing"):
        await events_of(await guarded.bus(CTL), within=1.0)
    assert await guarded.scheduler.info(STATE) is not None
