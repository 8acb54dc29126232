"""Which drivers commands name: from the slots as they are, or not at all."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.bus.permissions import permissions
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
from libs.contracts.streams import COMMANDS, STREAMS
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run
from services.driver.cluster.slot_cache import SlotCache

READER = Identity(writer=Writer.DRIVER_CLUSTER)


class SlotWorld:
    """A bus, who writes slots, and who reads them."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = LocalServer(clock=sim.clock, random=sim.random)
        self.writer = self.server.connect(Identity(writer=Writer.SCHEDULER))
        self.commanded = SlotCache()
        self._ops = 0

    async def write_slot(
        self, node: str, body: CommandBody, component: Writer = Writer.DRIVER
    ) -> None:
        """The slot of this component holds that now."""
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
        """What is, once everything has arrived."""
        await self.sim.clock.sleep(5)
        found = self.commanded()
        return None if found is None else dict(found)


def play(story: Callable[[SlotWorld], Coroutine[Any, Any, None]]) -> None:
    @asynccontextmanager
    async def followed(town: SlotWorld) -> AsyncGenerator[None]:
        for stream in STREAMS:
            await town.writer.ensure(stream)
        bus = town.server.connect(READER, permissions=permissions(READER))
        async with town.commanded.follow(bus):
            yield
        bus.kill()
        town.writer.kill()

    async def main(sim: Sim) -> None:
        town = SlotWorld(sim)
        assert town.commanded() is None
        async with followed(town):
            await story(town)

    run(main, seed=1)


def test_each_command_names_the_driver_that_it_needs_and_the_last_of_a_slot_counts() -> None:
    async def story(town: SlotWorld) -> None:
        await town.write_slot("a", Swap(label="new"))
        await town.write_slot("b", Idle(proven=Proven(label="old", kernel="6.8")))
        await town.write_slot("c", Validate(label="old"), Writer.VALIDATOR)
        await town.write_slot("d", Install(label="host"))
        await town.write_slot("e", Quiesce(), Writer.TELEMETRY)
        await town.write_slot("f", Swap(label=""))
        assert await town.commanded_drivers() == {
            "new": {"uid-a"},
            "old": {"uid-b", "uid-c"},
            "host": {"uid-d"},
        }
        await town.write_slot("b", Idle())
        await town.write_slot("c", Idle(), Writer.VALIDATOR)
        assert await town.commanded_drivers() == {"new": {"uid-a"}, "host": {"uid-d"}}

    play(story)


def test_a_slot_that_was_emptied_while_nobody_could_see_it_names_nothing() -> None:
    async def story(town: SlotWorld) -> None:
        await town.write_slot("a", Swap(label="old"))
        assert await town.commanded_drivers() == {"old": {"uid-a"}}
        town.server.cut(READER)
        assert await town.commanded_drivers() is None
        slots = subjects.Command(cluster="default", node="a", component=subjects.ANY)
        await town.writer.purge(COMMANDS, str(slots))
        town.server.restore(READER)
        assert await town.commanded_drivers() == {}

    play(story)


@pytest.mark.parametrize("data", [b"garbled", b'{"v": 99}'])
def test_what_cannot_be_read_may_name_any_driver(data: bytes) -> None:
    async def story(town: SlotWorld) -> None:
        slot = subjects.Command(cluster="default", node="a", component=Writer.DRIVER)
        sequence = await town.writer.store(COMMANDS, str(slot), data)
        assert await town.commanded_drivers() is None
        await town.writer.store(COMMANDS, str(slot), b"{}", expect=sequence)
        assert await town.commanded_drivers() is None
        await town.writer.purge(COMMANDS, str(slot))
        await town.write_slot("a", Idle())
        assert await town.commanded_drivers() == {}

    play(story)
