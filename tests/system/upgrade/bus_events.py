"""Events on the bus as they come: what the scheduler and the agents say that they do."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from libs.bus.events import RecordedEvent, StoredEvent, read_events
from libs.contracts.events import Event, EventBody, GrantEvent
from libs.contracts.identities import Writer
from tests.system.upgrade.world import World


class NewEvents:
    """The events since the beginning, each read once."""

    def __init__(self, entries: AsyncIterator[StoredEvent]) -> None:
        self._entries = entries
        self._began = time.time()

    async def first_node(self, says: Callable[[EventBody], bool]) -> str:
        """Return the node of the next event that says this."""
        async for entry in self._entries:
            if isinstance(entry, RecordedEvent) and entry.event.at >= self._began:
                body = entry.event.open()
                if says(body):
                    return _node_of(entry.event, body)
        raise AssertionError("the events have ended")


def _node_of(event: Event, body: EventBody) -> str:
    return body.nodes[0] if isinstance(body, GrantEvent) else event.node


@asynccontextmanager
async def new_events(world: World) -> AsyncGenerator[NewEvents]:
    """Follow the events on the bus until the end of the block."""
    async with (
        world.installation.bus(Writer.CTL) as bus,
        read_events(bus=bus, cluster=bus.identity.cluster, follow=True) as entries,
    ):
        yield NewEvents(entries)
