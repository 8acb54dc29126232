"""Fixtures: the in-process bus and a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.component.bus import servers
from tests.component.bus.servers import BusServer, MakeBus, ServerControl


@pytest.fixture(
    params=[pytest.param(servers.local, id="local"), pytest.param(servers.nats, id="nats")]
)
async def bus_server(request: pytest.FixtureRequest) -> AsyncIterator[BusServer]:
    async with request.param() as bus_server:
        yield bus_server


@pytest.fixture
def make_bus(bus_server: BusServer) -> MakeBus:
    """A function that connects an identity until the end of the test."""
    return bus_server.connect


@pytest.fixture
def control(bus_server: BusServer) -> ServerControl:
    """The server's faults."""
    return bus_server
