"""A bus to try: in this process, and on a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.component.bus import places
from tests.component.bus.places import MakeBus, Place, Trouble


@pytest.fixture(
    params=[pytest.param(places.local, id="local"), pytest.param(places.nats, id="nats")]
)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with request.param() as place:
        yield place


@pytest.fixture
def make_bus(place: Place) -> MakeBus:
    """A connection for an identity, which ends with the test."""
    return place.connect


@pytest.fixture
def trouble(place: Place) -> Trouble:
    """The server's switches."""
    return place
