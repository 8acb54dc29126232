"""Writes to slots: conflicts, outranking commands and round trips."""

import pytest

from libs.bus.port import BusUnavailable, SequenceConflict, StoredMessage
from libs.bus.slots import TRIES, SlotOutranked, SlotWriter, SlotWritten, next_order, outranks
from libs.contracts import subjects
from libs.contracts.commands import CHECK_VALID_SECONDS, Check, Command, HoldersCheck, Order
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


async def there(world: World) -> Command:
    stored = await world.writer.last(COMMANDS, str(SLOT))
    assert stored is not None
    return decode(Command, stored.data)


def stores(world: World) -> list[str]:
    """Who has stored something, from now on."""
    seen: list[str] = []

    def watch(it: TraceRecord) -> None:
        if it.what == "store":
            seen.append(it.who)

    world.server.add_tracer(watch)
    return seen


def test_commands_are_ordered_by_their_content() -> None:
    assert outranks(command(1, epoch=2), command(9, epoch=1))
    assert outranks(command(3), command(2, epoch=5))
    assert outranks(command(1, token=3), command(9, token=2))
    assert not outranks(command(1), command(2))
    assert not outranks(command(1), command(1, epoch=2))
    assert not outranks(command(1), command(1, deadline=5e9))
    assert not outranks(command(7, uid="uid-0"), command(1))
    assert outranks(command(7, uid="uid-0", epoch=2), command(1))
    # One order for two things: an agent may have begun the first.
    assert outranks(command(1), command(1, SWAP))
    assert outranks(command(1), command(1, boot="boot-2", epoch=2))


def test_the_next_order_is_above_all_known_ones_of_its_token() -> None:
    assert next_order(4) == Order(4, 1)
    assert next_order(4, Order(4, 2), None, Order(4, 7), Order(3, 9)) == Order(4, 8)


def test_a_write_with_a_current_cache_is_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
        monkeypatch.delattr(LocalBus, "last")  # only the store may be asked of the server
        assert await world.slots.write(SLOT, command(2)) == SlotWritten(2)
        monkeypatch.undo()
        assert await there(world) == command(2)

    in_world(story)


def test_an_identical_command_is_not_written_again() -> None:
    async def story(world: World) -> None:
        other = SlotWriter(bus=world.server.connect(SCHEDULER), clock=world.clock)
        assert await other.write(SLOT, command(1)) == SlotWritten(1)
        seen = stores(world)
        assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
        assert await other.write(SLOT, command(1)) == SlotWritten(1)
        assert seen == []

    in_world(story)


def test_an_outranking_command_is_returned_and_kept() -> None:
    async def story(world: World) -> None:
        newer = command(2, epoch=3)
        other = SlotWriter(bus=world.server.connect(SCHEDULER), clock=world.clock)
        assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
        assert await other.write(SLOT, newer) == SlotWritten(2)
        assert await world.slots.write(SLOT, command(3)) == SlotOutranked(newer)
        assert await world.slots.write(SLOT, command(1, epoch=3)) == SlotOutranked(newer)
        assert await there(world) == newer
        assert await world.slots.write(SLOT, command(1, epoch=3, uid="uid-2")) == SlotWritten(3)

    in_world(story)


def test_a_conflicting_write_is_retried_on_the_current_value() -> None:
    async def story(world: World) -> None:
        for op in (1, 2, 3):
            await world.slots.write(SLOT, command(op))
        world.server.lose_stream(COMMANDS, remade=True)
        assert await world.slots.read(SLOT) is None
        assert await world.slots.write(SLOT, command(3)) == SlotWritten(1)
        world.server.lose_stream(COMMANDS, remade=True)
        assert await world.slots.write(SLOT, command(4)) == SlotWritten(1)

    in_world(story)


def test_a_repeated_write_notices_a_lost_slot() -> None:
    async def story(world: World) -> None:
        await world.slots.write(SLOT, command(1))
        world.server.lose_stream(COMMANDS, remade=True)
        assert await world.slots.write(SLOT, command(1)) == SlotWritten(1)
        assert await there(world) == command(1)

    in_world(story)


def test_cached_values_are_not_used_after_an_outage() -> None:
    async def story(world: World) -> None:
        await world.slots.write(SLOT, command(1))
        newer = command(5, epoch=2)
        world.server.cut(SCHEDULER)
        world.server.lose_stream(COMMANDS, remade=True)
        other = SlotWriter(bus=world.server.connect(OTHER), clock=world.clock)
        assert await other.write(SLOT, newer) == SlotWritten(1)
        await world.clock.sleep(10.0)
        world.server.restore(SCHEDULER)
        assert await world.slots.write(SLOT, command(2)) == SlotOutranked(newer)
        assert await there(world) == newer

    in_world(story)


def test_a_malformed_slot_is_overwritten() -> None:
    async def story(world: World) -> None:
        await world.put(b'{"v":1,"node":7}')
        slot = await world.slots.read(SLOT)
        assert slot is not None
        assert slot.content is None
        assert "node" in slot.malformed
        assert await world.slots.write(SLOT, command(1, IDLE)) == SlotWritten(2)

    in_world(story)


def test_a_write_during_an_outage_raises_and_is_not_sent_later() -> None:
    async def story(world: World) -> None:
        await world.slots.write(SLOT, command(1))
        world.server.cut(SCHEDULER)
        with pytest.raises(BusUnavailable):
            await world.slots.write(SLOT, command(2))
        world.server.restore(SCHEDULER)
        await world.clock.sleep(60.0)
        assert await there(world) == command(1)

    in_world(story)


def test_a_write_fails_after_repeated_conflicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        await world.put(command(1, uid="uid-0"))
        rival = world.server.connect(OTHER)
        rivals: list[int] = []
        last = LocalBus.last

        async def beaten(bus: LocalBus, stream: Stream, subject: str) -> StoredMessage | None:
            found = await last(bus, stream, subject)
            rivals.append(len(rivals))
            theirs = command(1, uid=f"uid-{len(rivals)}")
            await rival.store(COMMANDS, str(SLOT), encode(theirs))
            return found

        monkeypatch.setattr(LocalBus, "last", beaten)
        with pytest.raises(SequenceConflict, match=r"quiesce 1\.2 was not written in 8 tries"):
            await world.slots.write(SLOT, command(2))
        assert len(rivals) == TRIES

    in_world(story)


def test_a_check_is_valid_for_a_minute_and_one_boot() -> None:
    async def story(world: World) -> None:
        slot = subjects.Check(
            cluster="default", node=NODE, component=Writer.DRIVER, asker=Writer.SCHEDULER
        )
        check = await world.slots.put_check(
            slot, HoldersCheck(), id="id-1", node_uid=UID, boot_id=BOOT
        )
        stored = await world.writer.last(COMMANDS, str(slot))
        assert stored is not None
        assert decode(Check, stored.data) == check
        assert check.expires == world.clock.now() + CHECK_VALID_SECONDS
        assert (check.id, check.node_uid, check.boot_id) == ("id-1", UID, BOOT)

    in_world(story)
