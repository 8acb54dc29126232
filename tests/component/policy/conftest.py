"""An API server to apply what is rendered to: simulated, and a real one where it is found."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from sluice.kube.transport import Transport
from sluice.sim.realkube.binaries import find
from sluice.sim.realkube.cluster import RealKube
from tests.component.kube.places import ADMIN
from tests.component.kube.servers import real, simulated

SEARCH = find(os.environ)


@pytest.fixture(scope="module")
def plane() -> Iterator[RealKube]:
    """A real control plane for the tests of one file."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.words)
    plane = asyncio.run(RealKube.start(binaries=SEARCH.binaries))
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture(params=["simulated", "real"])
def ground(request: pytest.FixtureRequest) -> RealKube | None:
    """The real control plane, or none: then the test has a simulated server of its own."""
    return request.getfixturevalue("plane") if request.param == "real" else None


@pytest.fixture
async def wire(ground: RealKube | None) -> AsyncIterator[Transport]:
    """To the server, as somebody who may do everything."""
    async with simulated() if ground is None else real(ground) as server:
        yield server.wire(ADMIN)
