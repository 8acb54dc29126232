"""The slot cache: the commands it holds, and the drivers that they name."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from libs.bus.permissions import permissions
from libs.bus.slot_cache import SlotCache
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import (
    Command,
    CommandBody,
    Idle,
    Install,
    Order,
    Proven,
    Quiesce,
    Swap,
    Validate,
)
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS, STREAMS
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim
from tests.unit.bus.simulated import in_simulation

READER = Identity(writer=Writer.DRIVER_CLUSTER)


class SlotWorld:
    """A bus, a writer of slots and a cache that follows them."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = LocalServer(env=sim.env())
        self.writer = self.server.connect(Identity(writer=Writer.SCHEDULER))
        self.changed: list[str] = []
        self.commanded = SlotCache(on_change=self.changed.append)
        self._ops = 0

    async def write_slot(
        self, node: str, body: CommandBody, component: Writer = Writer.DRIVER
    ) -> None:
        """Write a command into the slot of a component."""
        self._ops += 1
        slot = subjects.Command(cluster="default", node=node, component=component)
        command = Command.of(
            body,
            node=node,
            node_uid=f"uid-{node}",
            boot_id="boot",
            epoch=1,
            order=Order(1, self._ops),
            deadline=1e9,
        )
        await SlotWriter(bus=self.writer, clock=self.sim.clock).write(slot, command)

    async def commanded_drivers(self) -> dict[str, frozenset[str]] | None:
        """Return the drivers that commands name, after the stream was delivered."""
        await self.sim.clock.sleep(5)
        found = self.commanded.commanded_drivers()
        return None if found is None else dict(found)


@asynccontextmanager
async def enter_world(sim: Sim) -> AsyncGenerator[SlotWorld]:
    world = SlotWorld(sim)
    assert world.commanded.commanded_drivers() is None
    for stream in STREAMS:
        await world.writer.ensure(stream)
    bus = world.server.connect(READER, permissions=permissions(READER))
    async with world.commanded.follow(bus):
        yield world
    bus.kill()
    world.writer.kill()


in_virtual_time = in_simulation(enter_world, seed=1)


@in_virtual_time
async def test_the_latest_command_of_each_slot_names_its_driver(world: SlotWorld) -> None:
    await world.write_slot("a", Swap(label="new"))
    await world.write_slot("b", Idle(proven=Proven(label="old", kernel="6.8")))
    await world.write_slot("c", Validate(label="old"), Writer.VALIDATOR)
    await world.write_slot("d", Install(label="host"))
    await world.write_slot("e", Quiesce(), Writer.TELEMETRY)
    await world.write_slot("f", Swap(label=""))
    assert await world.commanded_drivers() == {
        "new": {"uid-a"},
        "old": {"uid-b", "uid-c"},
        "host": {"uid-d"},
    }
    await world.write_slot("b", Idle())
    await world.write_slot("c", Idle(), Writer.VALIDATOR)
    assert await world.commanded_drivers() == {"new": {"uid-a"}, "host": {"uid-d"}}


@in_virtual_time
async def test_a_slot_purged_during_an_outage_names_no_driver(world: SlotWorld) -> None:
    await world.write_slot("a", Swap(label="old"))
    assert await world.commanded_drivers() == {"old": {"uid-a"}}
    world.server.cut(READER)
    assert await world.commanded_drivers() is None
    slots = subjects.Command(cluster="default", node="a", component=subjects.ANY)
    await world.writer.purge(COMMANDS, str(slots))
    world.server.restore(READER)
    assert await world.commanded_drivers() == {}


@pytest.mark.parametrize("data", [b"garbled", b'{"v": 99}'])
@in_virtual_time
async def test_a_malformed_slot_may_name_any_driver(world: SlotWorld, data: bytes) -> None:
    slot = subjects.Command(cluster="default", node="a", component=Writer.DRIVER)
    sequence = await world.writer.store(COMMANDS, str(slot), data)
    assert await world.commanded_drivers() is None
    await world.writer.store(COMMANDS, str(slot), b"{}", expect=sequence)
    assert await world.commanded_drivers() is None
    await world.writer.purge(COMMANDS, str(slot))
    await world.write_slot("a", Idle())
    assert await world.commanded_drivers() == {}


@in_virtual_time
async def test_a_recreated_stream_with_lower_sequences_is_accepted(
    world: SlotWorld,
) -> None:
    cache = world.commanded
    for _ in range(3):
        await world.write_slot("a", Idle())
    await world.sim.clock.sleep(1)
    world.server.lose_stream(COMMANDS, remade=True)
    await world.write_slot("a", Quiesce())
    quiesce = Command.of(
        Quiesce(),
        node="a",
        node_uid="uid-a",
        boot_id="boot",
        epoch=1,
        order=Order(1, 4),
        deadline=1e9,
    )
    # The cache still counts by the sequences of the lost stream.
    assert not cache.record_write("a", Writer.DRIVER, quiesce, 1)
    await world.sim.clock.sleep(60)
    assert cache.commands_of("a")[Writer.DRIVER].order == Order(1, 4)
    assert cache.is_current
