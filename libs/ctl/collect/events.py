"""Collect the events of the stream."""

from collections.abc import AsyncGenerator

from libs.ctl.answers import EventLine
from libs.ctl.collect.versions import known_versions
from libs.ctl.options import Access


async def follow_events(
    access: Access, *, follow: bool, since: float | None, node: str
) -> AsyncGenerator[EventLine]:
    """Yield the events of the stream, in order; with `follow` without end."""
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.ctl.bus import open_bus
    from libs.ctl.failures import bus_failure

    versions = await known_versions(access)
    async with open_bus(access) as bus:
        try:
            async with read_events(bus=bus, cluster=access.cluster, follow=follow) as events:
                async for stored in events:
                    if not isinstance(stored, RecordedEvent):
                        continue
                    event = stored.event
                    if event.at >= (since or 0.0) and node in ("", event.node):
                        yield EventLine.of(event, versions)
        except BusError as error:
            raise bus_failure(error) from error
