"""Storing and reading messages, on both implementations."""

import time

import msgspec
import pytest

from libs.bus.port import BusError, BusMisconfigured, BusUnavailable, SequenceConflict
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS, EVENTS, STREAMS, Command, Event, Stream, notify
from tests.component.bus.recorders import RecordingHandler
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

SCHEDULER = Identity(writer=Writer.SCHEDULER)
KEPT = Stream(
    name="KEPT",
    subjects=("kept.>",),
    description="what a test stores",
    per_subject=2,
    max_message=1024,
    max_consumers=16,
)


async def test_a_stored_message_has_a_sequence_and_a_time(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    before = time.time()
    assert await bus.store(KEPT, "kept.a", b"1") == 1
    assert await bus.store(KEPT, "kept.b", b"2") == 2
    assert await bus.store(KEPT, "kept.a", b"3") == 3
    last = await bus.last(KEPT, "kept.a")
    assert last is not None
    assert (last.subject, last.sequence, last.data) == ("kept.a", 3, b"3")
    assert before - 1.0 <= last.time <= time.time() + 1.0
    assert await bus.last(KEPT, "kept.c") is None


async def test_stored_messages_survive_an_outage(make_bus: MakeBus, control: ServerControl) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    await bus.store(KEPT, "kept.a", b"1", id="one")
    await control.stop()
    await eventually(lambda: not bus.link.is_up)
    for call in (
        bus.store(KEPT, "kept.a", b"2"),
        bus.last(KEPT, "kept.a"),
        bus.purge(KEPT, "kept.a"),
        bus.ensure(KEPT),
    ):
        with pytest.raises(BusUnavailable):
            await call
    await control.start()
    await eventually(lambda: bus.link.is_up)
    last = await bus.last(KEPT, "kept.a")
    assert last is not None
    assert (last.sequence, last.data) == (1, b"1")
    assert await bus.store(KEPT, "kept.a", b"1", id="one") == 1


async def test_a_store_with_a_wrong_expected_sequence_conflicts(make_bus: MakeBus) -> None:
    first, second = await make_bus(SCHEDULER), await make_bus(SCHEDULER)
    await first.ensure(KEPT)
    await first.store(KEPT, "kept.b", b"in between")
    assert await first.store(KEPT, "kept.a", b"first", expect=0) == 2
    with pytest.raises(SequenceConflict, match=r"kept\.a"):
        await second.store(KEPT, "kept.a", b"first too", expect=0)
    assert await second.store(KEPT, "kept.a", b"second", expect=2) == 3
    with pytest.raises(SequenceConflict):
        await first.store(KEPT, "kept.a", b"late", expect=2)
    with pytest.raises(SequenceConflict):
        await first.store(KEPT, "kept.c", b"of nothing", expect=3)
    last = await first.last(KEPT, "kept.a")
    assert last is not None
    assert (last.sequence, last.data) == (3, b"second")
    assert await first.last(KEPT, "kept.c") is None


async def test_an_id_is_stored_once(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    assert await bus.store(KEPT, "kept.a", b"once", id="one") == 1
    assert await bus.store(KEPT, "kept.a", b"another", id="two") == 2
    assert await bus.store(KEPT, "kept.a", b"once", id="one") == 1
    last = await bus.last(KEPT, "kept.a")
    assert last is not None
    assert (last.sequence, last.data) == (2, b"another")


async def test_the_expected_sequence_is_checked_before_the_id(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    assert await bus.store(KEPT, "kept.a", b"slot", expect=0, id="one") == 1
    with pytest.raises(SequenceConflict):
        await bus.store(KEPT, "kept.a", b"slot", expect=0, id="one")
    assert await bus.store(KEPT, "kept.a", b"slot", expect=1, id="one") == 1


async def test_a_refused_message_can_be_stored_later_with_its_id(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    await bus.store(KEPT, "kept.a", b"other")
    with pytest.raises(SequenceConflict):
        await bus.store(KEPT, "kept.a", b"mine", expect=0, id="one")
    assert await bus.store(KEPT, "kept.a", b"mine", expect=1, id="one") == 2


async def test_purged_subjects_are_empty_and_others_are_not(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    for subject in ("kept.a.x", "kept.a.y", "kept.b.x", "kept.a.x"):
        await bus.store(KEPT, subject, b"")
    await bus.purge(KEPT, "kept.a.>")
    assert await bus.last(KEPT, "kept.a.x") is None
    assert await bus.last(KEPT, "kept.a.y") is None
    kept = await bus.last(KEPT, "kept.b.x")
    assert kept is not None
    assert kept.sequence == 3
    assert await bus.store(KEPT, "kept.a.x", b"", expect=0) == 5


async def test_a_stream_with_deny_purge_is_not_purged(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(EVENTS)
    subject = str(Event(cluster="default", node="a", writer="scheduler", kind="alert"))
    await bus.store(EVENTS, subject, b"")
    with pytest.raises(BusError, match="not purged"):
        await bus.purge(EVENTS, subject)
    assert await bus.last(EVENTS, subject) is not None


async def test_a_message_that_is_too_long_is_refused(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    with pytest.raises(BusError, match=r"kept\.a: .*1025 bytes.* 1024"):
        await bus.store(KEPT, "kept.a", b"x" * 1025)
    assert await bus.last(KEPT, "kept.a") is None


async def test_a_missing_stream_is_unavailable(make_bus: MakeBus) -> None:
    bus = await make_bus(SCHEDULER)
    with pytest.raises(BusUnavailable, match="KEPT does not exist"):
        await bus.store(KEPT, "kept.a", b"")
    with pytest.raises(BusUnavailable, match="KEPT does not exist"):
        await bus.last(KEPT, "kept.a")


async def test_a_lost_stream_is_recreated_by_its_owner(
    make_bus: MakeBus, control: ServerControl
) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(KEPT)
    await bus.store(KEPT, "kept.a", b"1")
    await bus.store(KEPT, "kept.a", b"2")
    downs: list[bool] = []
    bus.link.watch(downs.append)
    await control.lose(KEPT)
    await eventually(lambda: downs == [False, True])
    assert await bus.store(KEPT, "kept.a", b"anew", expect=0) == 1


async def test_a_write_to_a_slot_notifies_its_owner(make_bus: MakeBus) -> None:
    bus, handler = await make_bus(SCHEDULER), RecordingHandler()
    await bus.ensure(COMMANDS)
    slot = Command(cluster="default", node="a.example", component="driver")
    await bus.subscribe(notify(slot), handler)
    first = await bus.store(COMMANDS, str(slot), b"1", expect=0, id="one")
    with pytest.raises(SequenceConflict):
        await bus.store(COMMANDS, str(slot), b"refused", expect=0)
    await bus.store(COMMANDS, str(slot), b"1", id="one")
    await bus.store(COMMANDS, str(slot), b"2", expect=first)
    poke = notify(slot)
    await eventually(lambda: handler.received == [(poke, b"1"), (poke, b"2")])


async def test_ensure_is_idempotent(make_bus: MakeBus) -> None:
    bus, other = await make_bus(SCHEDULER), await make_bus(SCHEDULER)
    for stream in STREAMS:
        await bus.ensure(stream)
    slot = str(Command(cluster="default", node="a", component="driver"))
    await bus.store(COMMANDS, slot, b"kept")
    for stream in STREAMS:
        await other.ensure(stream)
    last = await bus.last(COMMANDS, slot)
    assert last is not None
    assert last.data == b"kept"


async def test_ensure_updates_the_configuration(make_bus: MakeBus) -> None:
    bus, handler = await make_bus(SCHEDULER), RecordingHandler()
    await bus.ensure(KEPT)
    await bus.store(KEPT, "kept.a", b"1")
    changed = msgspec.structs.replace(
        KEPT,
        subjects=("kept.>", "kept-too.>"),
        max_message=2048,
        notify=("kept-too.>", "poke.>"),
    )
    await bus.ensure(changed)
    await bus.subscribe("poke.>", handler)
    assert await bus.store(changed, "kept-too.b", b"x" * 1500) == 2
    await eventually(lambda: handler.received == [("poke.b", b"x" * 1500)])
    assert await bus.last(changed, "kept.a") is not None


@pytest.mark.parametrize(
    "wanted",
    [
        msgspec.structs.replace(KEPT, deny_purge=False),
        msgspec.structs.replace(KEPT, name="OTHER", subjects=("kept.*.b", "others")),
    ],
    ids=["purge", "subjects"],
)
async def test_misconfigurations_are_reported(make_bus: MakeBus, wanted: Stream) -> None:
    bus = await make_bus(SCHEDULER)
    await bus.ensure(msgspec.structs.replace(KEPT, deny_purge=True))
    with pytest.raises(BusMisconfigured, match=wanted.name):
        await bus.ensure(wanted)


async def test_a_full_stream_that_refuses_keeps_what_it_has(make_bus: MakeBus) -> None:
    """A stored message can be replaced by one that is not larger."""
    bus = await make_bus(SCHEDULER)
    full = msgspec.structs.replace(KEPT, per_subject=1, max_bytes=2_500, refuses_when_full=True)
    await bus.ensure(full)
    for subject in ("kept.a", "kept.b"):
        await bus.store(full, subject, b"x" * 1_000)
    with pytest.raises(BusUnavailable):
        await bus.store(full, "kept.c", b"x" * 1_000)
    await bus.store(full, "kept.a", b"y" * 1_000)
    for subject, data in (("kept.a", b"y"), ("kept.b", b"x")):
        last = await bus.last(full, subject)
        assert last is not None
        assert last.data == data * 1_000
    assert await bus.last(full, "kept.c") is None
