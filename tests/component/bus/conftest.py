"""Fixtures: the in-process bus and a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.component.bus import servers
from tests.component.bus.servers import BusServer, MakeBus, ServerControl


@pytest.fixture(
    params=[pytest.param(servers.local, id="local"), pytest.param(servers.nats, id="nats")]
)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[BusServer]:
    async with request.param() as place:
        yield place


@pytest.fixture
def make_bus(place: BusServer) -> MakeBus:
    """A connection for an identity, which ends with the test."""
    return place.connect


@pytest.fixture
def control(place: BusServer) -> ServerControl:
    """The server's faults."""
    return place
