"""Writes to slots: conflicts, outranking commands and round trips."""

import pytest

from libs.bus.port import BusUnavailable, SequenceConflict, StoredMessage
from libs.bus.slots import TRIES, SlotOutranked, SlotWriter, SlotWritten, outranks
from libs.contracts import subjects
from libs.contracts.commands import CHECK_VALID_SECONDS, Check, Command, HoldersCheck
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import decode, encode
from libs.contracts.subjects import COMMANDS, Stream
from libs.testing.bus import LocalBus, TraceRecord
from tests.unit.bus.command_world import (
    BOOT,
    IDLE,
    NODE,
    SCHEDULER,
    SLOT,
    SWAP,
    UID,
    World,
    command,
    in_world,
)

OTHER = Identity(writer=Writer.DRIVER_CLUSTER)


async def slot_content(world: World) -> Command:
    stored = await world.writer.last(COMMANDS, str(SLOT))
    assert stored is not None
    return decode(Command, stored.data)


def stores(world: World) -> list[str]:
    """Return a list that grows by the identity of each store."""
    identities: list[str] = []

    def on_trace(record: TraceRecord) -> None:
        if record.action == "store":
            identities.append(record.identity)

    world.server.add_tracer(on_trace)
    return identities


def test_commands_are_ordered_by_their_content() -> None:
    assert outranks(command(1, epoch=2), command(9, epoch=1))
    assert outranks(command(3), command(2, epoch=5))
    assert outranks(command(1, token=3), command(9, token=2))
    assert not outranks(command(1), command(2))
    assert not outranks(command(1), command(1, epoch=2))
    assert not outranks(command(1), command(1, deadline=5e9))
    assert not outranks(command(7, uid="uid-0"), command(1))
    assert outranks(command(7, uid="uid-0", epoch=2), command(1))
    # Two commands have the same order: an agent may have started the first.
    assert outranks(command(1), command(1, SWAP))
    assert outranks(command(1), command(1, boot="boot-2", epoch=2))


@in_world
async def test_a_write_with_a_current_cache_is_one_round_trip(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
    monkeypatch.delattr(LocalBus, "last")  # the write must not read the slot
    assert await world.slots.write(SLOT, command(2)) == SlotWritten(2)
    monkeypatch.undo()
    assert await slot_content(world) == command(2)


@in_world
async def test_an_identical_command_is_not_written_again(world: World) -> None:
    other = SlotWriter(bus=world.server.connect(SCHEDULER), clock=world.clock)
    assert await other.write(SLOT, command(1)) == SlotWritten(1)
    writers = stores(world)
    assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
    assert await other.write(SLOT, command(1)) == SlotWritten(1)
    assert writers == []


@in_world
async def test_an_outranking_command_is_returned_and_kept(world: World) -> None:
    newer = command(2, epoch=3)
    other = SlotWriter(bus=world.server.connect(SCHEDULER), clock=world.clock)
    assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
    assert await other.write(SLOT, newer) == SlotWritten(2)
    assert await world.slots.write(SLOT, command(3)) == SlotOutranked(newer)
    assert await world.slots.write(SLOT, command(1, epoch=3)) == SlotOutranked(newer)
    assert await slot_content(world) == newer
    assert await world.slots.write(SLOT, command(1, epoch=3, uid="uid-2")) == SlotWritten(3)


@in_world
async def test_a_conflicting_write_is_retried_on_the_current_value(world: World) -> None:
    for op in (1, 2, 3):
        await world.slots.write(SLOT, command(op))
    world.server.lose_stream(COMMANDS, remade=True)
    assert await world.slots.read(SLOT) is None
    assert await world.slots.write(SLOT, command(3)) == SlotWritten(1)
    world.server.lose_stream(COMMANDS, remade=True)
    assert await world.slots.write(SLOT, command(4)) == SlotWritten(1)


@in_world
async def test_cached_values_are_not_used_after_an_outage(world: World) -> None:
    await world.slots.write(SLOT, command(1))
    newer = command(5, epoch=2)
    world.server.cut(SCHEDULER)
    world.server.lose_stream(COMMANDS, remade=True)
    other = SlotWriter(bus=world.server.connect(OTHER), clock=world.clock)
    assert await other.write(SLOT, newer) == SlotWritten(1)
    await world.clock.sleep(10.0)
    world.server.restore(SCHEDULER)
    assert await world.slots.write(SLOT, command(2)) == SlotOutranked(newer)
    assert await slot_content(world) == newer


@in_world
async def test_a_malformed_slot_is_overwritten(world: World) -> None:
    await world.put(b'{"v":1,"node":7}')
    slot = await world.slots.read(SLOT)
    assert slot is not None
    assert slot.content is None
    assert "node" in slot.malformed
    assert await world.slots.write(SLOT, command(1, IDLE)) == SlotWritten(2)


@in_world
async def test_a_write_during_an_outage_raises_and_is_not_sent_later(world: World) -> None:
    await world.slots.write(SLOT, command(1))
    world.server.cut(SCHEDULER)
    with pytest.raises(BusUnavailable):
        await world.slots.write(SLOT, command(2))
    world.server.restore(SCHEDULER)
    await world.clock.sleep(60.0)
    assert await slot_content(world) == command(1)


@in_world
async def test_a_write_fails_after_repeated_conflicts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(command(1, uid="uid-0"))
    rival = world.server.connect(OTHER)
    rivals: list[int] = []
    last = LocalBus.last

    async def last_then_conflict(
        bus: LocalBus, stream: Stream, subject: str
    ) -> StoredMessage | None:
        found = await last(bus, stream, subject)
        rivals.append(len(rivals))
        rival_command = command(1, uid=f"uid-{len(rivals)}")
        await rival.store(COMMANDS, str(SLOT), encode(rival_command))
        return found

    monkeypatch.setattr(LocalBus, "last", last_then_conflict)
    with pytest.raises(SequenceConflict, match=r"quiesce 1\.2 was not written in 8 tries"):
        await world.slots.write(SLOT, command(2))
    assert len(rivals) == TRIES


@in_world
async def test_a_check_is_valid_for_a_minute_and_one_boot(world: World) -> None:
    slot = subjects.Check(
        cluster="default", node=NODE, component=Writer.DRIVER, asker=Writer.SCHEDULER
    )
    check = await world.slots.put_check(slot, HoldersCheck(), id="id-1", node_uid=UID, boot_id=BOOT)
    stored = await world.writer.last(COMMANDS, str(slot))
    assert stored is not None
    assert decode(Check, stored.data) == check
    assert check.expires == world.clock.now() + CHECK_VALID_SECONDS
    assert (check.id, check.node_uid, check.boot_id) == ("id-1", UID, BOOT)
